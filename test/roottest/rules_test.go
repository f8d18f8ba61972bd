package roottest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRulesMasks: what is there when a session starts is closed or read-only as the rules
// say, and nothing is left on the host.
func TestRulesMasks(t *testing.T) {
	opt := ruledOptions(t, `
access:
  useDefaults: false
  deny: ["**/.env", "~/keys/**"]
  rules:
    - {deny: "~/conf", ops: [write]}
    - {deny: "~/conf/inner", ops: [bash]}
agents:
  main:
    access:
      rules: [{allow: "~/keys/public/**"}]
`)
	m := open(t, opt)
	c := sleeper(t, m, "masks")
	for _, name := range []string{".env", "a/b/.env", "keys/private", "keys/public/k", "conf/x", "conf/inner/y", "plain", "twin"} {
		putFile(t, c, name, secret+" "+name)
	}
	must.Do(t, os.Remove(filepath.Join(c.Home, "twin")))
	must.Do(t, os.Link(filepath.Join(c.Home, "a/b/.env"), filepath.Join(c.Home, "twin")))
	rc := putFile(t, c, ".bashrc", "cat ~/.env ~/keys/private > ~/seen 2>&1\n")
	must.Do(t, os.Chmod(rc, 0o644))
	wake(t, m, c.ID)
	if got := tells(t, m, c, "cat ~/seen"); strings.Contains(got, secret) || !strings.Contains(got, "Operation not permitted") {
		t.Errorf("the chat's first command read %q", got)
	}
	t.Log(tells(t, m, c, "ls -la . keys keys/public conf a/b; cat /proc/self/mountinfo | tail -12"))
	for _, name := range []string{".env", "a/b/.env", "keys/private", "conf/inner/y", "twin"} {
		refused(t, m, c, "cat %s", name)
		refused(t, m, c, "echo over > %s", name)
	}
	refused(t, m, c, "mv conf/inner/y gone")
	for _, name := range []string{".env", "a/b/.env", "keys/private", "twin"} {
		refused(t, m, c, "mv %[1]s gone; cat gone; code=$?; mv gone %[1]s; exit $code", name)
	}
	for _, name := range []string{"keys/public/k", "conf/x", "plain"} {
		if got := tells(t, m, c, "cat %s", name); !strings.Contains(got, secret) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got := tells(t, m, c, "echo more >> conf/x"); !strings.Contains(got, "Read-only file system") {
		t.Errorf("a write to what is read-only says %s", got)
	}
	got := tells(t, m, c, "echo more > keys/public/n && cat keys/public/n")
	expect.True(t, strings.Contains(got, "more"), "a write to an exception says %s", got)
	for _, name := range []string{".env", "a/b/.env", "keys/private", "conf/x"} {
		expect.Equal(t, string(must.Get(os.ReadFile(filepath.Join(c.Home, name)))(t)), secret+" "+name,
			"on the host %s holds", name)
	}
}

// TestRulesUnkeepable: rules with which no session could start are refused when they are read, and
// change nothing: awake chats stay awake, with the old rules. Accepted rules let sessions continue,
// and start.
func TestRulesUnkeepable(t *testing.T) {
	old := `access: {useDefaults: false, deny: ["~/keys/**"]}`
	opt := ruledOptions(t, old)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := ruled(t, m, "unkeepable", "keys/k")
	for _, pattern := range []string{"dev", "/pro*", "*", "usr", "~", "/srv/**/homes/*", "bash", "libc.so*", "/{bin,x}", "/dev/nul?", "/var", "/t*", "/opt", "etc"} {
		err := reloadRules(t, m, `access: {useDefaults: false, deny: ["`+pattern+`"]}`)
		if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rules.yaml:1") || !strings.Contains(err.Error(), "does not start without") {
			t.Errorf("%s: %v", pattern, err)
		}
		if got, err := m.Get(ctx, c.ID); err != nil || !got.Awake {
			t.Fatalf("%s is refused, and ended a session: awake is %v, %v", pattern, got.Awake, err)
		}
		refused(t, m, c, "cat keys/k")
	}
	for _, pattern := range []string{"/usr/share/doc", "/usr/sbin", "*.log", "/home", "/mnt", "/etc/ssl"} {
		must.Do(t, reloadRules(t, m, `access: {useDefaults: false, deny: ["~/keys/**", "`+pattern+`"]}`))
		must.Get(m.Sleep(ctx, c.ID))(t)
		wake(t, m, c.ID)
		expect.Equal(t, tells(t, m, c, "echo up"), "up\n", "%s: a run says", pattern)
	}
}

// TestRulesMatchTooMuch: rules that match more of what sessions share than one can have masked are
// refused when they are read, with line and count: at a reload awake chats stay awake, with the old
// rules, and chatd does not start with such rules.
func TestRulesMatchTooMuch(t *testing.T) {
	opt := ruledOptions(t, `access: {useDefaults: false, deny: ["~/keys/**"]}`)
	shared := srvDir(t)
	for i := range 20_001 {
		must.Do(t, os.WriteFile(filepath.Join(shared, fmt.Sprintf("%d.hdr", i)), nil, 0o644))
	}
	expose(opt, "ruled", shared, "/srv/headers")
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	c := ruled(t, m, "too-much", "keys/k")
	many := map[string]*filerules.Policy{"ruled": policy(t, "access:\n  useDefaults: false\n  deny: [\"*.hdr\"]\n")}
	err = m.Reload(operator(t.Context()), many)
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "rules.yaml:3") || !strings.Contains(err.Error(), "it matches 20001 places") {
		t.Errorf("a reload with rules that match too much: %v", err)
	}
	got, err := m.Get(operator(t.Context()), c.ID)
	must.True(t, err == nil && got.Awake, "they ended a session: awake is %v, %v", got.Awake, err)
	refused(t, m, c, "cat keys/k")
	must.Do(t, m.Close())
	fewer := opt.FileRules
	opt.FileRules = many
	expect.Says(t, expect.Err(openManager(t.Context(), opt)), nil, "it matches 20001 places",
		"a start with rules that match too much")
	opt.FileRules = fewer
	m = open(t, opt)
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || !got.Awake {
		t.Errorf("the start that failed ended a session: awake is %v, %v", got.Awake, err)
	}
}

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

// TestPolicyCheckCounts: chatd policy check refuses a rule that matches too much of this host's
// /usr, by its line, and loads one that does not.
func TestPolicyCheckCounts(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	const text = "access:\n  deny:\n  - \"*.none\"\n  - \"*.counted\"\n"
	must.Do(t, os.WriteFile(rules, []byte(text), 0o600))
	for files, refused := range map[string]bool{"20": false, "20001": true} {
		const script = `mount -t tmpfs none /usr/share && cd /usr/share &&
			seq -f %g.counted "$1" | xargs touch && exec "$2" policy check --json "$3"`
		out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", script,
			"sh", files, programs.chatd, rules).Output()
		var got struct {
			Valid  bool
			Errors []struct{ Place, Why string }
		}
		jsonErr := json.Unmarshal(out, &got)
		must.True(t, jsonErr == nil, "policy check: %v, %v: %s", err, jsonErr, out)
		if !refused {
			expect.True(t, err == nil && got.Valid, "with %s files: %v: %s", files, err, out)
			continue
		}
		if err == nil || got.Valid || len(got.Errors) != 1 || got.Errors[0].Place != rules+":4" ||
			!strings.Contains(got.Errors[0].Why, "it matches "+files+" places") {
			t.Errorf("with %s files: %v: %s", files, err, out)
		}
	}
}
