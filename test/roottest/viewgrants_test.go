package roottest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestGrants: what an expression stands for is there, by the name it has on the
// host, and nothing that only looks like it; to read is not to write.
func TestGrants(t *testing.T) {
	opt, s := withShop(t)
	must.Do(t, os.Symlink("/etc/shadow", s.at("x/dir/link.txt")))
	m := open(t, opt)
	c := create(t, m, "grants", "shop")
	tryAll(t, m, c, []want{
		{"cat " + s.at("x/allow"), "yes"}, {"cat " + s.at("x/allowed-not"), "No such file"},
		{"echo x >" + s.at("x/allow"), readOnly}, {"rm -f " + s.at("x/allow"), readOnly},
		{"cat " + s.at("x/dir/a.txt") + " " + s.at("x/dir/deep/b.txt"), "a\nb\n"},
		{"cat " + s.at("x/dir/deep/c.log"), "No such file"}, {"cat " + s.at("x/dir/link.txt"), "No such file"},
		{"echo more >>" + s.at("x/out.log") + "; cat " + s.at("x/out.log"), "out\nmore\n"},
		{"mv " + s.at("x/out.log") + " " + s.at("x/moved.log"), readOnly},
		{"cat /sys/class/net/lo/address", "00:00:00:00:00:00"}, {"echo x >/sys/class/net/lo/address", readOnly}, {"ls /sys/class/net/lo/mtu", "No such file"},
		{"head -c 9 /proc/cpuinfo", "processor"}, {"grep -c localhost /etc/hosts", "2"}, {"echo x >/tmp/picoclaw-1.txt", ""},
	})
	b, err := os.ReadFile(s.at("x/out.log"))
	expect.True(t, string(b) == "out\nmore\n", "on the host there is %q, %v", b, err)
	grantedToTools(t, m, c, s)
}

// grantedToTools: the file tools have the same grants, awake and asleep.
func grantedToTools(t *testing.T, m *manager, c chat.Chat, s shop) {
	t.Helper()
	text := "by the tool\n"
	for _, how := range []string{"awake", "asleep"} {
		for _, w := range []struct {
			path          string
			reads, writes bool
		}{
			{s.at("x/allow"), true, false}, {s.at("x/allowed-not"), false, false}, {"/opt/tools/hello", true, false},
			{s.at("x/out.log"), false, true}, {s.at("shared/kept2"), true, true}, {"shared/kept2", true, true},
			{"work/assets/logo", true, false}, {"/usr/bin/env", false, false},
		} {
			_, err := m.AppendFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: w.path, Content: &text}, nil)
			expect.True(t, (err == nil) == w.writes, "%s: append to %s: %v", how, w.path, err)
			_, err = m.ReadFile(operator(t.Context()), c.ID, filewire.ReadFile{Path: w.path}, func(filewire.Answer) io.Writer { return io.Discard })
			expect.True(t, (err == nil) == w.reads, "%s: read %s: %v", how, w.path, err)
		}
		must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	}
}

// TestLaterMatches: what matches an expression only since a session began is there for the file
// tools, which read the host's file, and for programs in the next session. What does not match, or
// is a link, is not.
func TestLaterMatches(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	s.write(t, "later/one.txt", "one\n")
	edit(opt, "later", func(p *chat.Profile) {
		p.AllowReadPaths = []string{"^" + s.at("later") + `/[a-z/]+\.txt$`}
	})
	m := open(t, opt)
	c := create(t, m, "later", "later")
	tryAll(t, m, c, []want{{"cat " + s.at("later/one.txt"), "one"}})
	s.write(t, "later/two.txt", "two\n")
	s.write(t, "later/deep/three.txt", "three\n")
	s.write(t, "later/two.log", "no\n")
	must.Do(t, os.Symlink("/etc/passwd", s.at("later/link.txt")))
	for name, want := range map[string]string{
		"one.txt": "one\n", "two.txt": "two\n", "deep/three.txt": "three\n", "two.log": "", "link.txt": "", "none.txt": "",
	} {
		got, err := get(t, m, c.ID, s.at("later/"+name))
		expect.True(t, got == want && (err == nil) == (want != ""),
			"the tool reads %q of %s, %v; want %q", got, name, err, want)
	}
	must.Do(t, os.WriteFile(s.at("later/two.txt"), []byte("changed\n"), 0o644))
	got, err := get(t, m, c.ID, s.at("later/two.txt"))
	expect.True(t, got == "changed\n", "the tool reads %q, %v: not the host's file", got, err)
	text := "x"
	_, err = m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: s.at("later/two.txt"), Content: &text}, nil)
	expect.True(t, err != nil, "the tool writes what may be read")
	tryAll(t, m, c, []want{{"cat " + s.at("later/two.txt"), "No such file"}})
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	tryAll(t, m, c, []want{{"cat " + s.at("later/two.txt"), "changed"}})
}

// TestTooManyMatches: a thousand paths are mounted; one more stops the load, and a
// chat from waking where it came later.
func TestTooManyMatches(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	for i := range chat.MaxGrantMatches {
		s.write(t, fmt.Sprintf("many/%04d.txt", i), "x\n")
	}
	edit(opt, "many", func(p *chat.Profile) {
		p.AllowReadPaths = []string{"^" + s.at("many") + `/[0-9]+\.txt$`}
	})
	m := open(t, opt)
	c := create(t, m, "a thousand", "many")
	tryAll(t, m, c, []want{{"cat " + s.at("many") + "/*.txt 2>&1 | sort | uniq -c; cat " + s.at("many/0999.txt"), "x"},
		{"grep -c " + s.at("many") + " /proc/self/mountinfo", fmt.Sprint(chat.MaxGrantMatches)}})
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	s.write(t, "many/1000.txt", "x\n")
	const why = "allow_read_paths[0]: cannot use"
	_, err := m.Wake(operator(t.Context()), c.ID)
	expect.True(t, err != nil && !errors.Is(err, chat.ErrInvalid) && strings.Contains(err.Error(), why) && strings.Contains(err.Error(), "more than 1000 paths"), "wake with 1,001 matches: %v", err)
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	expect.True(t, expect.Err(openManager(t.Context(), opt)) != nil, "a second chatd came up")
	later := options(t)
	later.Profiles = opt.Profiles
	expect.Says(t, expect.Err(openManager(t.Context(), later)), chat.ErrInvalid, why,
		"start with 1,001 matches")
	manyByDaemon(t, later, opt.Profiles["many"].AllowReadPaths[0])
}

// manyByDaemon: the error of the program has the file and the line.
func manyByDaemon(t *testing.T, opt provision.Options, pattern string) {
	t.Helper()
	config := configFile(t, opt, "profiles:\n  many:\n    allow_read_paths:\n      - '^/etc/hosts$'\n      - '"+pattern+"'\n")
	const line = 12
	for _, check := range []string{"--check", "--json"} {
		ctx, cancel := context.WithTimeout(t.Context(), longEnough) // one that serves would never end
		defer cancel()
		cmd := exec.CommandContext(ctx, programs.chatd, "serve", check, "--config", config)
		out, _ := cmd.CombinedOutput()
		want := fmt.Sprintf("%s:%d: profiles.many.allow_read_paths[1]: cannot use", config, line)
		if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), want) {
			t.Errorf("serve %s ends with %d: %s\nwant %s", check, code, out, want)
		}
	}
}

// TestRefusedSources: what would break a wall does not load, and the error says why.
func TestRefusedSources(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	dir := filepath.Dir(opt.State)
	prepareRefused(t, opt, s)
	for source, why := range map[string]string{
		"/": "the whole host", "/proc": "everybody's processes", "/proc/1/root": "everybody's processes", "/etc": "holds passwords", "/root/.ssh": "root's own",
		"/run/docker.sock": "sockets of the host's services", "/dev": "devices", "/sys": "devices",
		"/srv": "chatd's own", dir: "chatd's own", opt.Homes: "chatd's own", opt.Homes + "/0123456789abcdef": "chatd's own", opt.State + "/tmp": "chatd's own",
		opt.Run: "chatd's own", s.at("alias"): "chatd's own", s.at("parent"): "chatd's own", s.at("kernel"): "proc is mounted in it",
		s.at("link"): "is a link to", s.at("way/hello"): "is a link to", s.at("sock"): "is a socket", s.at("fifo"): "a fifo or a device",
		s.at("open/in"): "everybody may write", s.at("theirs/in"): "which owns it", s.at("grouped/in"): "a group",
		s.at("closed/in"): "may not pass", s.at("none"): "not there", s.at("motd/x"): "is a file",
	} {
		t.Run(source, func(t *testing.T) {
			for _, mode := range []chat.Mode{chat.ReadOnly, chat.ReadWrite} {
				p := opt.Profiles["default"]
				p.ExposePaths = []chat.Expose{{Source: source, Target: "/opt/x", Mode: mode}}
				o := opt
				o.Profiles = map[string]chat.Profile{"default": p}
				if m, err := openManager(t.Context(), o); err == nil || !strings.Contains(err.Error(), why) {
					if err == nil {
						must.Do(t, m.Close())
					}
					t.Errorf("%s: %v\nwant %s", mode, err, why)
				}
			}
		})
	}
}

func prepareRefused(t *testing.T, opt provision.Options, s shop) {
	t.Helper()
	for _, d := range []string{"alias", "parent", "kernel/proc", "open/in", "theirs/in", "grouped/in", "closed/in"} {
		must.Do(t, os.MkdirAll(s.at(d), 0o755))
	}
	must.Do(t, os.MkdirAll(opt.Homes, 0o711))
	for path, on := range map[string]string{opt.Homes: s.at("alias"), filepath.Dir(opt.Homes): s.at("parent")} {
		mount(t, path, on, "")
	}
	mount(t, "proc", s.at("kernel/proc"), "")
	must.Do(t, errors.Join(os.Symlink(s.at("tools"), s.at("link")), os.Symlink("tools", s.at("way")), unix.Mkfifo(s.at("fifo"), 0o666),
		os.Chmod(s.at("open"), os.ModeSticky|0o777), os.Chown(s.at("theirs"), 12345, 0), os.Chmod(s.at("grouped"), 0o775), os.Chmod(s.at("closed"), 0o700)))
	l := must.Get(net.Listen("unix", s.at("sock")))(t)
	t.Cleanup(func() { l.Close() })
}

// TestRefusedTargets: a place inside another's, or in the homes, that no mount
// point may be made at.
func TestRefusedTargets(t *testing.T) {
	opt := options(t)
	s := newShop(t, opt)
	must.Do(t, errors.Join(os.MkdirAll(s.at("shared/made"), 0o777), os.Symlink("inner", s.at("tools/linked"))))
	in := func(source, target string, mode chat.Mode) chat.Expose {
		return chat.Expose{Source: s.at(source), Target: target, Mode: mode}
	}
	for name, c := range map[string]struct {
		rules []chat.Expose
		why   string
	}{
		"no mount point":         {[]chat.Expose{in("tools", "/opt/tools", chat.ReadOnly), in("assets", "/opt/tools/none", chat.ReadOnly)}, "expose_paths[1].target: \"/opt/tools/none\" lies in the target of expose_paths[0]"},
		"in what chats write to": {[]chat.Expose{in("assets", "/opt/s/made", chat.ReadOnly), in("shared", "/opt/s", chat.ReadWrite)}, "everybody may write"},
		"through a link":         {[]chat.Expose{in("tools", "/opt/tools", chat.ReadOnly), in("assets", "/opt/tools/linked", chat.ReadOnly)}, "is a link to"},
		"a file on a directory":  {[]chat.Expose{in("tools", "/opt/tools", chat.ReadOnly), in("motd", "/opt/tools/inner", chat.ReadOnly)}, "is a directory and no file"},
		"in the homes":           {[]chat.Expose{in("assets", opt.Homes+"/0123456789abcdef/x", chat.ReadOnly)}, "where the homes are"},
		"over the homes":         {[]chat.Expose{in("assets", filepath.Dir(opt.Homes), chat.ReadOnly)}, "where the homes are"},
		"in a home, nested":      {[]chat.Expose{in("shared", "~/s", chat.ReadWrite), in("assets", "~/s/made", chat.ReadOnly)}, "everybody may write"},
	} {
		p := opt.Profiles["default"]
		p.ExposePaths = c.rules
		o := opt
		o.Profiles = map[string]chat.Profile{"default": p}
		if m, err := openManager(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.why) {
			if err == nil {
				must.Do(t, m.Close())
			}
			t.Errorf("%s: %v\nwant %s", name, err, c.why)
		}
	}
}

// TestSourceSwappedLater: what was right when chatd began is looked at again.
func TestSourceSwappedLater(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "swap", "shop")
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	must.Do(t, errors.Join(os.Rename(s.at("assets"), s.at("assets.was")), os.Symlink("/etc", s.at("assets"))))
	refusedWake(t, m, c, "is a link to")
	must.Do(t, os.Remove(s.at("assets")))
	refusedWake(t, m, c, "not there")
	must.Do(t, errors.Join(os.Rename(s.at("assets.was"), s.at("assets")), os.Chmod(s.dir, 0o777)))
	refusedWake(t, m, c, "everybody may write")
	must.Do(t, os.Chmod(s.dir, 0o755))
	must.Get(m.Wake(operator(t.Context()), c.ID))(t)
	tryAll(t, m, c, []want{{"cat ~/work/assets/logo", "logo"}})
}

func refusedWake(t *testing.T, m *manager, c chat.Chat, why string) {
	t.Helper()
	expect.Says(t, expect.Err(m.Wake(operator(t.Context()), c.ID)), nil, why, "wake")
	left := pidsOf(c.UID)
	expect.True(t, len(left) == 0, "a chat that may not wake has processes %v", left)
}
