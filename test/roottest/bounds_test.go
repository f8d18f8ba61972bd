package roottest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestTwoThousandPlaces: a session with as many exposed paths and matches as a profile may
// have starts and shows them all; one more stops the load.
func TestTwoThousandPlaces(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	p := opt.Profiles["default"]
	p.Name = "most"
	for i := range chat.MaxGrantMatches {
		s.write(t, fmt.Sprintf("exposed/%04d.txt", i), "exposed\n")
		s.write(t, fmt.Sprintf("granted/%04d.txt", i), "granted\n")
		p.ExposePaths = append(p.ExposePaths, chat.Expose{Source: s.at(fmt.Sprintf("exposed/%04d.txt", i)), Mode: chat.ReadOnly})
	}
	p.AllowReadPaths = []string{"^" + s.at("granted") + `/[0-9]+\.txt$`}
	opt.Profiles["most"] = p
	m := open(t, opt)
	c := create(t, m, "most", "most")
	tryAll(t, m, c, []want{
		{"cat $(seq -f " + s.at("exposed/%04g.txt") + " 0 999) $(seq -f " + s.at("granted/%04g.txt") + " 0 999) | sort | uniq -c | tr -s ' '", " 1000 exposed\n 1000 granted\n"},
		{"echo x > " + s.at("exposed/0999.txt"), readOnly}, {"echo x > " + s.at("granted/0999.txt"), readOnly},
	})
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	more := p
	more.ExposePaths = append(slices.Clone(p.ExposePaths), chat.Expose{Source: s.at("granted"), Target: "/opt/more", Mode: chat.ReadOnly})
	refuseProfile(t, opt, more, "allow_read_paths[0]: expose_paths and all grants of the profile stand for more than 2000 paths")
	more.AllowReadPaths = nil
	for range 2 * chat.MaxGrantMatches {
		more.ExposePaths = append(more.ExposePaths, chat.Expose{Source: s.at("granted"), Target: fmt.Sprint("/opt/", len(more.ExposePaths)), Mode: chat.ReadOnly})
	}
	refuseProfile(t, opt, more, "expose_paths: 3001 rules: want at most 2000")
}

func refuseProfile(t *testing.T, opt provision.Options, p chat.Profile, why string) {
	t.Helper()
	other := options(t)
	other.Profiles = map[string]chat.Profile{"default": opt.Profiles["default"], p.Name: p}
	m, err := openManager(t.Context(), other)
	if err == nil {
		must.Do(t, m.Close())
	}
	expect.True(t, errors.Is(err, chat.ErrInvalid) && strings.Contains(err.Error(), why),
		"%v\nwant %s", err, why)
}

// TestRulesLargeHome: rules that find 1,000 files in a home of 100,000 are kept from the
// session's first moment, and what comes later with them.
func TestRulesLargeHome(t *testing.T) {
	const files, matches = 100_000, 1_000
	m := open(t, ruledOptions(t, `access: {useDefaults: false, deny: ["**/.found"]}`))
	c := sleeper(t, m, "large")
	for i := range files {
		dir := filepath.Join(c.Home, fmt.Sprint(i%matches))
		name, text := fmt.Sprint(i), ""
		if i < matches {
			must.Do(t, os.Mkdir(dir, 0o755))
			name, text = ".found", secret
		}
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	rc := putFile(t, c, ".bashrc", "cat ~/999/.found ~/0/.found > ~/seen 2>&1\n")
	must.Do(t, os.Chmod(rc, 0o644))
	wake(t, m, c.ID)
	got := tells(t, m, c, "cat ~/seen */.found 2>&1")
	if n := strings.Count(got, "not permitted") - 2; strings.Contains(got, secret) || n != matches {
		t.Errorf("of %d denied files %d were refused: %.300s", matches, n, got)
	}
	putFile(t, c, "500/later/.found", secret)
	refused(t, m, c, "cat 500/later/.found")
}

// needsRoom skips, or fails, where the disk has less than this many bytes free.
func needsRoom(t testing.TB, dir string, bytes uint64) {
	t.Helper()
	var st unix.Statfs_t
	must.Do(t, unix.Statfs(dir, &st))
	if free := st.Bavail * uint64(st.Bsize); free < bytes {
		missing(t, fmt.Sprintf("%d MiB free below %s, which has %d", bytes>>20, dir, free>>20))
	}
}
