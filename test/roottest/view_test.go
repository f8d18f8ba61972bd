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

// shop is what an operator has for its chats: below /srv, where root alone may write.
type shop struct{ dir string }

func newShop(t testing.TB, opt provision.Options) shop {
	t.Helper()
	s := shop{filepath.Join(filepath.Dir(opt.State), "shop")}
	for path, text := range map[string]string{
		"tools/hello": "#!/bin/sh\necho hello from the tools\n", "tools/inner/kept": "kept\n", "shared/kept": "kept\n",
		"motd": "good day\n", "assets/logo": "logo\n", "x/allow": "yes\n", "x/allowed-not": "no\n", "x/dir/a.txt": "a\n",
		"x/dir/deep/b.txt": "b\n", "x/dir/deep/c.log": "c\n", "x/out.log": "out\n",
	} {
		s.write(t, path, text)
	}
	must.Do(t, errors.Join(os.Chmod(s.at("tools/hello"), os.ModeSetuid|0o755), os.Chmod(s.at("shared"), os.ModeSticky|0o777),
		os.Chmod(s.at("x/out.log"), 0o666), os.Chmod(s.at("motd"), 0o666)))
	return s
}

func (s shop) at(path string) string { return filepath.Join(s.dir, path) }

func (s shop) write(t testing.TB, path, text string) {
	t.Helper()
	for dir := filepath.Dir(s.at(path)); dir != filepath.Dir(filepath.Dir(s.dir)); dir = filepath.Dir(dir) {
		must.Do(t, os.MkdirAll(dir, 0o755))
		must.Do(t, os.Chmod(dir, 0o755)) // whatever the umask
	}
	must.Do(t, os.WriteFile(s.at(path), []byte(text), 0o644))
	must.Do(t, os.Chmod(s.at(path), 0o644))
}

// whole lists everything in the shop with its content, owner and mode.
func (s shop) whole(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		text := []byte{}
		if d.Type().IsRegular() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&b, "%s %d %o %q\n", path, st.Uid, st.Mode, text)
		return nil
	}))
	return b.String()
}

// profile gives chats the whole of it.
func (s shop) profile() chat.Profile {
	return chat.Profile{
		Name: "shop", Limits: chat.DefaultLimits(), Commands: []string{"*"},
		ExposePaths: []chat.Expose{
			{Source: s.at("assets"), Target: "~/work/assets", Mode: chat.ReadOnly},
			{Source: s.at("shared"), Target: "/opt/tools/inner", Mode: chat.ReadWrite},
			{Source: s.at("tools"), Target: "/opt/tools", Mode: chat.ReadOnly},
			{Source: s.at("shared"), Mode: chat.ReadWrite},
			{Source: s.at("shared"), Target: "~/shared", Mode: chat.ReadWrite},
			{Source: s.at("motd"), Target: "~/motd", Mode: chat.ReadOnly},
		},
		AllowReadPaths: []string{
			"^" + s.at("x/allow"), "^" + s.at("x/dir") + `/.*\.txt$`, "^/etc/hosts$", "^/proc/cpuinfo$", "^/sys/class/net/[^/]+/address$",
		},
		AllowWritePaths: []string{"^" + s.at("x") + `/[a-z]+\.log$`, `^/tmp/picoclaw-.*\.txt$`},
	}
}

func withShop(t testing.TB) (provision.Options, shop) {
	t.Helper()
	opt := options(t)
	s := newShop(t, opt)
	opt.Profiles["shop"] = s.profile()
	return opt, s
}

// want is a command in a chat and what it prints, both streams.
type want struct{ command, out string }

func tryAll(t *testing.T, m *manager, c chat.Chat, all []want) {
	t.Helper()
	for _, w := range all {
		r := run(t, m, c.ID, w.command)
		if out := r.Stdout + r.Stderr; !strings.Contains(out, w.out) || w.out == "" && out != "" {
			t.Errorf("%s\n got %q\nwant %q", w.command, out, w.out)
		}
	}
}

const readOnly = "Read-only file system"

// TestExposePaths: what is exposed is there with its mode, which the kernel keeps,
// and nothing beside it is.
func TestExposePaths(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "expose", "shop")
	tryAll(t, m, c, []want{
		{"/opt/tools/hello", "hello from the tools"},
		{"touch /opt/tools/x", readOnly},
		{"rm /opt/tools/hello", readOnly},
		{"chmod 777 /opt/tools/hello", readOnly},
		{"echo x >/opt/tools/hello", readOnly},
		{"touch ~/work/assets/x; cat ~/work/assets/logo", readOnly},
		{"cat ~/work/assets/logo", "logo"},
		{"cat ~/motd", "good day"},
		{"echo x >>~/motd", readOnly},
		{"rm ~/motd", "busy"},
		{"echo mine >" + s.at("shared/mine") + " && cat ~/shared/mine /opt/tools/inner/mine", "mine\nmine\n"},
		{"grep ' /opt/tools ' /proc/self/mountinfo", "ro,nosuid,nodev"},
		{"grep ' " + s.at("shared") + " ' /proc/self/mountinfo", "rw,nosuid,nodev"},
		{"ls " + s.dir, "Permission denied"}, // there for its mount points, and no rule is about it
		{"cat " + s.at("motd"), "No such file"},
		{"mkdir -p " + s.at("new"), readOnly},
	})
	text := must.Get(os.ReadFile(s.at("shared/mine")))(t)
	uid := ownerUID(t, s.at("shared/mine"))
	expect.True(t, string(text) == "mine\n" && uid == c.UID, "on the host there is %q of uid %d", text, uid)
	other := create(t, m, "another", "shop")
	tryAll(t, m, other, []want{
		{"ls ~/shared", "kept\nmine"},
		{"cat ~/shared/mine", "Permission denied"}, // the umask of a chat is 077
		{"rm -f ~/shared/mine", "not permitted"},   // the directory is sticky
		{"echo theirs >~/shared/theirs", ""},
	})
	expect.Equal(t, ownerUID(t, s.at("shared/theirs")), other.UID, "the other's file is of uid")
	plain := create(t, m, "plain", "default")
	tryAll(t, m, plain, []want{{"ls /opt/tools", "No such file"}, {"ls " + s.at("shared"), "No such file"}, {"ls ~/shared", "No such file"}})
}

func ownerUID(t testing.TB, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	must.Do(t, unix.Lstat(path, &st))
	return st.Uid
}

// TestReapLeavesWhatWasExposed: whether the chat is awake or asleep, and whatever
// it made of the mount points in its home, reap takes nothing through them.
func TestReapLeavesWhatWasExposed(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	before := s.whole(t)
	for _, how := range []string{"awake", "asleep", "linked"} {
		c := create(t, m, how, "shop")
		tryAll(t, m, c, []want{{"cat ~/shared/kept ~/work/assets/logo", "kept\nlogo\n"}})
		if how != "awake" {
			must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
		}
		if how == "linked" {
			must.Do(t, errors.Join(os.Remove(c.Home+"/shared"), os.Symlink(s.at("shared"), c.Home+"/shared"), os.Symlink(s.dir, c.Home+"/all")))
		}
		must.Do(t, m.Reap(operator(t.Context()), c.ID))
		gone(t, opt, c)
		if after := s.whole(t); after != before {
			t.Fatalf("reap of a chat %s changed what it saw:\n%s\nwas\n%s", how, after, before)
		}
	}
}

// TestMountPointsInAHome: a chat that puts links where chatd mounts cannot redirect the mounts, and
// wakes.
func TestMountPointsInAHome(t *testing.T) {
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "links", "shop")
	must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
	victim := filepath.Join(filepath.Dir(opt.State), "victim")
	must.Do(t, errors.Join(os.Mkdir(victim, 0o777), os.Chmod(victim, 0o777)))
	for _, cmd := range [][]string{{"work", victim}, {"shared", "/opt/chatd/shims"}, {"motd", victim + "/made"}} {
		must.Do(t, errors.Join(os.RemoveAll(c.Home+"/"+cmd[0]), os.Symlink(cmd[1], c.Home+"/"+cmd[0])))
	}
	must.Get(m.Wake(operator(t.Context()), c.ID))(t)
	tryAll(t, m, c, []want{
		{"cat ~/work/assets/logo ~/shared/kept ~/motd", "logo\nkept\ngood day\n"},
		{"readlink ~/work.chatd-1 ~/shared.chatd-1 ~/motd.chatd-1", victim + "\n/opt/chatd/shims\n" + victim + "/made\n"},
		{"test -x /opt/chatd/shims/sudo && echo still a shim", "still a shim"},
	})
	made, err := os.ReadDir(victim)
	expect.True(t, err == nil && len(made) == 0, "beside the home there is %v, %v", made, err)
	_ = s
}

// TestNothingMountsItself: a path is not mounted because a command names it, begins
// there or has it in its environment, and no environment is inherited.
func TestNothingMountsItself(t *testing.T) {
	t.Setenv("CHATD_TEST_LEAK", "of the daemon")
	opt, s := withShop(t)
	m := open(t, opt)
	c := create(t, m, "arguments", "default")
	host := s.at("motd")
	for _, spec := range []chat.RunSpec{
		{Argv: []string{"/bin/cat", host}}, {Argv: []string{"/bin/ls", s.dir}}, {Argv: []string{s.at("tools/hello")}}, {Command: "cat " + host},
		{Command: `cat "$HOSTFILE"`, Env: map[string]string{"HOSTFILE": host}}, {Command: "cat motd", Cwd: s.dir},
	} {
		r, err := m.Run(operator(t.Context()), c.ID, spec)
		if err == nil && r.Exit == 0 || strings.Contains(r.Stdout, "good day") {
			t.Errorf("%+v: %+v, %v", spec, r, err)
		}
	}
	r := run(t, m, c.ID, "env; tr '\\0' '\\n' </proc/1/environ; cat /proc/self/mountinfo")
	expect.True(t, !strings.Contains(r.Stdout, "LEAK") && !strings.Contains(r.Stdout, s.dir),
		"inherited or mounted: %s", r.Stdout)
	env := c.Home + "/runtime-user-env/"
	for _, line := range []string{"HOME=" + c.Home, "TMPDIR=/tmp", "XDG_CONFIG_HOME=" + env + "config", "XDG_CACHE_HOME=" + env + "cache", "XDG_STATE_HOME=" + env + "state"} {
		expect.True(t, slices.Contains(strings.Split(r.Stdout, "\n"), line), "no %s", line)
	}
	tryAll(t, m, c, []want{
		{"dirname $(mktemp)", "/tmp"},
		{`python3 -c 'import getpass, os, socket, tempfile
p = tempfile.gettempdir() + "/pytest-of-" + getpass.getuser() + "/pytest-0/test_server_echoes_back0"
os.makedirs(p)
socket.socket(socket.AF_UNIX).bind(p + "/app.sock")
print("bound")'`, "bound"},
		{"ls -d ~/skills ~/logs ~/cache ~/state ~/runtime-user-env | wc -l", "5"},
		{"stat -c %u%a ~/skills", fmt.Sprintf("%d700", c.UID)},
		{"mkdir " + opt.Homes + "/x", readOnly}, {"mkdir /x", readOnly}, {"mkdir /opt/chatd/x", readOnly}, {"mkdir " + filepath.Dir(opt.Homes) + "/x", readOnly},
		{"rm -rf ~/skills; ln -s /etc ~/logs2; rmdir ~/cache; ln -s /etc ~/cache", ""},
	})
	m.Reconcile(t.Context())
	tryAll(t, m, c, []want{{"stat -c %F ~/skills ~/cache", "directory\nsymbolic link"}})
}
