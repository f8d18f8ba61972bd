package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/must"
)

// TestYoungerDatabase: a database that was lost, or replaced by an older copy, is refused while a
// home, a private /tmp, an account or a line of the audit log has a uid that it never gave. With
// the right one back, or with nothing left of those chats, chatd starts.
func TestYoungerDatabase(t *testing.T) {
	opt := options(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	db := filepath.Join(opt.State, "chatd.db")
	a := asleep(t, m, "a")
	must.Do(t, m.Close())
	old := must.Get(os.ReadFile(db))(t)
	m = must.Get(openManager(t.Context(), opt))(t)
	b := asleep(t, m, "b")
	must.Do(t, m.Close())
	whole := must.Get(os.ReadFile(db))(t)

	log := filepath.Join(opt.State, "audit.jsonl")
	lines := must.Get(os.ReadFile(log))(t)
	tmp, varTmp := privateTrees(opt, b)
	refused := func(what, why string) {
		t.Helper()
		_, err := openManager(t.Context(), opt)
		if !errors.Is(err, chat.ErrExists) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "restore chatd.db and install.key") {
			t.Fatalf("%s: %v", what, err)
		}
	}
	must.Do(t, os.WriteFile(db, old, 0o600))
	refused("an older copy beside the log", "audit.jsonl names")
	must.Do(t, os.WriteFile(log, nil, 0o600))
	refused("an older copy beside a home", fmt.Sprintf("of uid %d", b.UID))
	must.Do(t, os.Remove(db))
	refused("no database", "of uid")
	if h, err := provision.Doctor(t.Context(), opt); err != nil || !strings.Contains(strings.Join(h.Broken, "\n"), "younger than what is on this host") {
		t.Errorf("doctor says %q, %v", h.Broken, err)
	}
	moved := map[string]string{}
	for i, trace := range []string{opt.Homes, filepath.Dir(tmp), filepath.Dir(varTmp)} {
		moved[trace] = filepath.Join(filepath.Dir(opt.State), fmt.Sprint("kept", i))
		must.Do(t, os.Rename(trace, moved[trace]))
	}
	refused("accounts alone", "/etc/userdb/")
	for trace, kept := range moved {
		must.Do(t, ignoreGone(os.RemoveAll(trace)))
		must.Do(t, os.Rename(kept, trace))
	}
	must.Do(t, os.WriteFile(db, whole, 0o600))
	must.Do(t, os.WriteFile(log, lines, 0o600))
	m = must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	must.Do(t, errors.Join(m.Reap(ctx, a.ID), m.Reap(ctx, b.ID), m.Close()))

	must.Do(t, os.Remove(db))
	refused("an audit log alone", "audit.jsonl names")
	must.Do(t, os.Remove(log))
	m = must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, m.Close())
}
