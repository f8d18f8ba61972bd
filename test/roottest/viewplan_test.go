package roottest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPlanIsWhatRuns: the plan of a session is what the kernel says of it, entry by entry and in
// both directions.
func TestPlanIsWhatRuns(t *testing.T) {
	opt, _ := withShop(t)
	m := open(t, opt)
	for _, profile := range []string{"shop", "default", "web"} {
		c := create(t, m, "plan of "+profile, profile)
		p := must.Get(m.Plan(operator(t.Context()), c.ID))(t)
		pid := number(sessionInit(t, c))
		expect.True(t, p.StartedAt != nil && p.ID == c.ID && p.UID == c.UID && p.Profile == profile,
			"%+v", p)
		sameMounts(t, opt, c, p, pid)
		sameNamespaces(t, p, pid)
		sameEnv(t, p, c.UID)
	}
	if onHost() {
		t.Log("the private /tmp of a unit is PAM's, and is compared with its directory")
	}
}

// mountLine is one line of mountinfo.
type mountLine struct{ options, kind, super string }

func mountsOf(t testing.TB, pid int) map[string]mountLine {
	t.Helper()
	b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid)))(t)
	all := map[string]mountLine{}
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		all[f[4]] = mountLine{f[5], g[0], g[2]}
	}
	return all
}

func sameMounts(t *testing.T, opt provision.Options, c chat.Chat, p chat.Plan, pid int) {
	t.Helper()
	have := mountsOf(t, pid)
	shown := map[string]chat.Mount{}
	for _, m := range p.Mounts {
		if m.Type != chat.MountLink && m.Type != chat.MountDir && m.Type != chat.MountFile {
			shown[m.Target] = m // the last of a target hides the others
		}
	}
	for target, m := range shown {
		got, ok := have[target]
		if _, err := os.Lstat(m.Source); m.Optional && err != nil && !ok {
			continue
		}
		if !ok {
			t.Errorf("%s: %s is told and not mounted", p.Profile, target)
			continue
		}
		if mode, _, _ := strings.Cut(got.options, ","); mode != string(m.Mode) {
			t.Errorf("%s: %s is %s, told %s", p.Profile, target, got.options, m.Mode)
		}
		kind := map[string]string{chat.MountTmpfs: "tmpfs", chat.MountDev: "tmpfs", chat.MountProc: "proc"}[m.Type]
		if kind != "" && kind != got.kind || m.Size != 0 && !strings.Contains(got.super, fmt.Sprintf("size=%dk", m.Size>>10)) {
			t.Errorf("%s: %s is %+v, told %+v", p.Profile, target, got, m)
		}
		own := strings.HasPrefix(m.Source, filepath.Join(opt.Run, "sessions")) || m.Mode == chat.ReadWrite
		if m.Type == chat.MountBind && !sameFile(t, hostSource(opt, c, m), fmt.Sprintf("/proc/%d/root%s", pid, target), own) {
			t.Errorf("%s: %s is not %s", p.Profile, target, m.Source)
		}
	}
	for target := range have {
		if _, ok := shown[target]; !ok && !strings.HasPrefix(target, "/dev/") && !strings.HasPrefix(target, "/proc/") {
			t.Errorf("%s: %s is mounted and not told", p.Profile, target)
		}
	}
}

// hostSource is the source of a mount as this process finds it.
func hostSource(opt provision.Options, c chat.Chat, m chat.Mount) string {
	tmp, varTmp := privateTrees(opt, c)
	switch m.Source {
	case "/tmp":
		return tmp
	case "/var/tmp":
		return varTmp
	}
	return m.Source
}

// sameFile reports that b is a: the very inode where own is set, and else the same thing
// with an inode of its own, which an overlay gives it.
func sameFile(t testing.TB, a, b string, own bool) bool {
	t.Helper()
	var x, y unix.Stat_t
	if err := errors.Join(unix.Stat(a, &x), unix.Stat(b, &y)); err != nil {
		t.Error(err)
		return false
	}
	if own {
		return x.Dev == y.Dev && x.Ino == y.Ino
	}
	return x.Dev != y.Dev && x.Mode == y.Mode && x.Mtim == y.Mtim && x.Size == y.Size
}

func sameNamespaces(t *testing.T, p chat.Plan, pid int) {
	t.Helper()
	for file, name := range map[string]string{"cgroup": "cgroup", "ipc": "ipc", "mnt": "mount", "net": "net", "pid": "pid", "user": "user", "uts": "uts"} {
		theirs := must.Get(os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, file)))(t)
		ours := must.Get(os.Readlink("/proc/self/ns/" + file))(t)
		expect.Equal(t, slices.Contains(p.Namespaces, name), (theirs != ours),
			"%s: namespace %s of its own: %t, told", p.Profile, name, theirs != ours)
	}
}

// sameEnv looks at the terminal's server, the first program of the chat.
func sameEnv(t *testing.T, p chat.Plan, uid uint32) {
	t.Helper()
	for _, pid := range pidsOf(uid) {
		if commOf(pid) != "tmux: server" {
			continue
		}
		b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)))(t)
		var names []string
		for e := range strings.SplitSeq(strings.TrimRight(string(b), "\x00"), "\x00") {
			name, _, _ := strings.Cut(e, "=")
			names = append(names, name)
		}
		if slices.Sort(names); !slices.Equal(names, p.Env) {
			t.Errorf("%s: the environment has %q, told %q", p.Profile, names, p.Env)
		}
		return
	}
	t.Errorf("uid %d has no terminal", uid)
}

// TestPlanOutlivesChatd: a session keeps what it began with when chatd is started again with
// another config, and so does its plan; the next session has the new.
func TestPlanOutlivesChatd(t *testing.T) {
	opt, s := withShop(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	c := create(t, m, "outlives", "shop")
	before, err := m.Plan(operator(t.Context()), c.ID)
	must.Do(t, errors.Join(err, m.Close()))
	edit(opt, "shop", func(p *chat.Profile) {
		p.ExposePaths, p.AllowWritePaths = []chat.Expose{{Source: s.at("assets"), Target: "/opt/tools", Mode: chat.ReadOnly}}, nil
	})
	m = open(t, opt)
	after, err := m.Plan(operator(t.Context()), c.ID)
	expect.True(t, err == nil && reflect.DeepEqual(before, after),
		"the plan is %+v, %v\nwas %+v", after, err, before)
	tryAll(t, m, c, []want{{"/opt/tools/hello && echo x >" + s.at("shared/later") + " && cat ~/motd", "hello from the tools\ngood day\n"}})
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	after, err = m.Plan(operator(t.Context()), c.ID)
	if err != nil || after.StartedAt != nil || !hasMount(after, s.at("assets"), "/opt/tools") || hasMount(after, s.at("shared"), c.Home+"/shared") {
		t.Errorf("asleep the plan is %+v, %v", after, err)
	}
	must.Get(m.Wake(operator(t.Context()), c.ID))(t)
	tryAll(t, m, c, []want{{"cat /opt/tools/logo", "logo"}, {"cat ~/shared/kept", "No such file"}})
}

func hasMount(p chat.Plan, source, target string) bool {
	return slices.ContainsFunc(p.Mounts, func(m chat.Mount) bool { return m.Source == source && m.Target == target })
}

// TestPlanIsForOperators, and a session's is logged, once, with everything in one record.
func TestPlanIsForOperators(t *testing.T) {
	opt, s := withShop(t)
	var log lockedBuffer
	opt.Log = slog.New(slog.NewJSONHandler(&log, nil))
	edit(opt, "shop", func(p *chat.Profile) { p.Bridges = []string{"one"} })
	m := open(t, opt)
	bridge := chat.WithCaller(context.Background(), chat.Caller{Name: "one", UID: 1000, Role: chat.RoleBridge})
	c := must.First(m.Create(bridge, chat.Spec{ExternalID: "mine", Profile: "shop"}))(t)
	expect.Is(t, expect.Err(m.Plan(bridge, c.ID)), chat.ErrDenied, "a bridge's own chat")
	other := chat.WithCaller(context.Background(), chat.Caller{Name: "two", UID: 1001, Role: chat.RoleBridge})
	expect.Is(t, expect.Err(m.Plan(other, c.ID)), chat.ErrNotFound, "another's chat")
	var found int
	for line := range strings.Lines(log.String()) {
		var r struct {
			Msg, Chat, Profile, Network    string
			Mounts, Env, Namespaces, Notes []string
			Landlock                       []chat.PathRight
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Msg != "linux isolation mount plan" {
			continue
		}
		found++
		if r.Chat != string(c.ID) || r.Profile != "shop" || r.Network != "none" || !slices.Contains(r.Mounts, "bind "+s.at("tools")+"->/opt/tools ro") ||
			!slices.Contains(r.Env, "TMPDIR") || !slices.Contains(r.Namespaces, "pid") || !slices.Contains(r.Landlock, chat.PathRight{Right: "exec", Path: "/opt/tools"}) || len(r.Notes) == 0 {
			t.Errorf("the record is %s", line)
		}
	}
	expect.True(t, found == 1, "%d records of the plan, want 1", found)
	exposed := s.at("tools") + `\" at \"/opt/tools\" ro`
	expect.True(t, len(auditLines(t, opt, exposed)) > 0, "the audit log has no %s", exposed)
}

// lockedBuffer is a log that many may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestExposeForAll: what is said for all profiles holds in each, and what a profile
// says of the same target overrides it, in the program as it is started.
func TestExposeForAll(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	d := startDaemon(t, opt, "", fmt.Sprintf(`expose_paths:
  - {source: %s, target: /opt/a, mode: rw}
  - {source: %s, target: /opt/b, mode: ro}
profiles: {own: {expose_paths: [{source: %s, target: /opt/a, mode: ro}]}}
`, s.at("shared"), s.at("tools"), s.at("assets")))
	for profile, w := range map[string]string{"default": "kept\nhello\ninner\n", "own": "logo\nhello\ninner\n"} {
		c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: profile, Profile: profile}))(t)
		r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Command: "ls /opt/a /opt/b | grep -v -e : -e '^$'"})
		expect.True(t, err == nil && r.Stdout == w, "%s: %q, %v; want %q", profile, r.Stdout, err, w)
		p, err := d.Plan(t.Context(), c.ID)
		expect.True(t, err == nil && hasMount(p, s.at("tools"), "/opt/b"),
			"%s: %v, %+v", profile, err, p.Mounts)
		must.Do(t, d.Reap(t.Context(), c.ID))
	}
}
