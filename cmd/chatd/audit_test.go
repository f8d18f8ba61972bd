package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/must"
)

// madeAudit is a state directory with two chats and a command line that would clear a
// terminal, which no daemon has open.
func madeAudit(t *testing.T) (dir string, a chat.ID) {
	t.Helper()
	dir = t.TempDir()
	s := must.Get(state.Open(state.Options{Dir: dir}))(t)
	by := state.Event{Action: "create", Outcome: "intent", Caller: chat.Caller{Name: "ada", Role: chat.RoleBridge}}
	for _, name := range []string{"a", "b"} {
		if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
			t.Fatal(err)
		}
		r, _, err := s.Admit(chat.Spec{ExternalID: name}, by)
		if err != nil {
			t.Fatal(err)
		}
		run := state.Event{Action: "run", Outcome: "intent", Chat: r.ID, Caller: by.Caller, Argv: []string{"printf", "a b", "\x1b[2J"}}
		must.Do(t, s.Audit(run))
		if name == "a" {
			a = r.ID
		}
	}
	must.Do(t, s.Close())
	return dir, a
}

func auditAs(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	code = mainWith(t.Context(), append([]string{"chatd", "audit"}, args...), nil, &o, &e)
	return code, o.String(), e.String()
}

// TestAudit: the log is shown without a daemon, narrowed, escaped, and as it lies there.
func TestAudit(t *testing.T) {
	dir, a := madeAudit(t)
	for _, c := range []struct {
		args  []string
		lines int
		want  string
	}{
		{[]string{"show"}, 5, `run intent by ada argv=["printf" "a b" "\x1b[2J"]`},
		{[]string{"--chat", string(a)}, 2, string(a)},
		{[]string{"--chat", a.User(), "--since", "1d"}, 2, "create intent by ada"},
		{[]string{"--since", time.Now().Add(time.Hour).Format(time.RFC3339)}, 0, ""},
		{[]string{"--json"}, 5, `"argv":["printf","a b","\u001b[2J"]`},
		{[]string{"--verify"}, 1, "5 lines hold; its end is as the database has it"},
	} {
		code, out, errOut := auditAs(t, append(c.args, "--state", dir)...)
		if code != 0 || strings.Count(out, "\n") != c.lines || !strings.Contains(out, c.want) || strings.Contains(out, "\x1b") {
			t.Errorf("%q: exit %d\n%s%s", c.args, code, out, errOut)
		}
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--chat", "x"}, {"nonsense"}} {
		if code, out, errOut := auditAs(t, append(args, "--state", dir)...); code != 2 || out != "" {
			t.Errorf("%q: exit %d %s%s", args, code, out, errOut)
		}
	}
	if code, _, errOut := auditAs(t, "--state", filepath.Join(dir, "none")); code != 4 || !strings.Contains(errOut, "want the state directory") {
		t.Errorf("no log: exit %d %s", code, errOut)
	}
}

// TestAuditVerify exits 1 with the first line that is not as it was written.
func TestAuditVerify(t *testing.T) {
	dir, _ := madeAudit(t)
	log := filepath.Join(dir, "audit.jsonl")
	whole := must.Get(os.ReadFile(log))(t)
	must.Do(t, os.WriteFile(log, bytes.Replace(whole, []byte("a b"), []byte("a c"), 1), 0o600))
	if code, out, errOut := auditAs(t, "--verify", "--state", dir); code != 1 || out != "" || !strings.Contains(errOut, "line 4: its prev is not the hash of the line before") {
		t.Errorf("exit %d %s%s", code, out, errOut)
	}
	if code, out, _ := auditAs(t, "--verify", "--json", "--state", dir); code != 1 || !strings.Contains(out, `"holds": false`) {
		t.Errorf("exit %d %s", code, out)
	}
}
