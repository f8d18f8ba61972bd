package files

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/landlock"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const nobody = 65534

// TestAsChat is what only a uid without rights can show. As root it starts
// itself again as such a uid, in a home that root prepared.
func TestAsChat(t *testing.T) {
	if os.Geteuid() != 0 {
		asChat(t)
		return
	}
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must.Do(t, os.Chmod(d, 0o711))
	}
	prepare(t, dir+"/home")
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAsChat$", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "TMPDIR="+dir+"/home", "CHATD_FILES_HOME="+dir+"/home")
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") || !strings.Contains(string(out), "--- PASS: TestAsChat/hard_link") {
		t.Errorf("as uid %d: %v\n%s", nobody, err, out)
	}
}

// prepare makes a home with files that root left in it.
func prepare(t *testing.T, home string) {
	t.Helper()
	mkdir(t, home+"/fixed")
	for _, name := range []string{"secret", "alone", "readable"} {
		must.Do(t, os.WriteFile(home+"/"+name, []byte("of root"), 0o644))
	}
	for name, other := range map[string]string{"secret": "/linked", "readable": "/fixed/linked"} {
		must.Do(t, os.Link(home+"/"+name, home+other))
	}
	must.Do(t, os.Chmod(home+"/fixed", 0o755))
	must.Do(t, os.Chown(home, nobody, nobody))
}

func asChat(t *testing.T) {
	t.Run("kernel", func(t *testing.T) { kernelDenies(t, newWorld(t)) })
	t.Run("directory", func(t *testing.T) {
		w := newWorld(t)
		mkdir(t, w.home+"/d")
		put1(t, w.home+"/d/f", "x")
		must.Do(t, os.Chmod(w.home+"/d", 0o100))
		defer os.Chmod(w.home+"/d", 0o700)
		if got, _, err := w.read(filewire.ReadFile{Path: "d/f"}); err != nil || got != "x" {
			t.Errorf("below a directory that may only be entered: %q, %v", got, err)
		}
		_, _, err := w.list(filewire.ListDir{Path: "d"})
		wantDenied(t, err, filewire.RuleKernel, "failed to read directory: access denied")
	})
	t.Run("unlistable", func(t *testing.T) { unlistable(t, newWorld(t)) })
	t.Run("hard link", func(t *testing.T) {
		home := os.Getenv("CHATD_FILES_HOME")
		need(t, home != "", "root: to leave files of another owner")
		hardLinks(t, home)
	})
}

// kernelDenies: what the modes forbid is a denial too, with PicoClaw's words, and
// a file that may not be written is not replaced, though its directory would let it.
func kernelDenies(t *testing.T, w world) {
	put1(t, w.home+"/none", "x")
	put1(t, w.home+"/ro", "text")
	mkdir(t, w.home+"/dir")
	for name, mode := range map[string]os.FileMode{"none": 0, "ro": 0o400, "dir": 0o500} {
		must.Do(t, os.Chmod(w.home+"/"+name, mode))
	}
	defer os.Chmod(w.home+"/dir", 0o700)
	_, _, err := w.read(filewire.ReadFile{Path: "none"})
	wantDenied(t, err, filewire.RuleKernel, "failed to read file: access denied")
	for _, p := range []string{"ro", "none", "dir/new", "dir/new/deep"} {
		_, err := w.write(p, "x")
		wantDenied(t, err, filewire.RuleKernel, "failed to write file: access denied")
		_, err = w.append(p, "x")
		wantDenied(t, err, filewire.RuleKernel, "failed to append to file: access denied")
	}
	_, err = w.edit("ro", "text", "x")
	wantDenied(t, err, filewire.RuleKernel, "failed to edit file: access denied")
	expect.True(t, cat(t, w.home+"/ro") == "text", "a file that may not be written was")
}

// hardLinks: a file of another owner with a second name is refused where the chat
// could have made that name, and only there, and only where rules are to be kept.
func hardLinks(t *testing.T, home string) {
	for _, rules := range []bool{true, false} {
		opt := filewire.Options{Workspace: home}
		if rules {
			opt.Check = func(filewire.Op, string) *filewire.Denial { return nil }
		}
		tools := must.Get(Open(opt))(t)
		w := world{Tools: tools}
		for p, refused := range map[string]bool{"linked": rules, "alone": false, "fixed/linked": false} {
			_, _, err := w.read(filewire.ReadFile{Path: p})
			expect.True(t, (err != nil) == refused, "%s, rules %v: %v", p, rules, err)
			if refused {
				wantDenied(t, err, filewire.RuleHardLink, "access denied: the file is another owner's and has another name")
			}
		}
		put1(t, home+"/mine", "mine")
		unix.Link(home+"/mine", home+"/mine-too")
		expect.Is(t, expect.Err(w.read(filewire.ReadFile{Path: "mine-too"})), nil, "the chat's own file")
		must.Do(t, tools.Close())
	}
}

// unlistable: in a directory that may not be read a file that is there can be appended
// to, and one that is not there is not made: its name could not be synced.
func unlistable(t *testing.T, w world) {
	mkdir(t, w.home+"/d")
	put1(t, w.home+"/d/f", "text")
	must.Do(t, os.Chmod(w.home+"/d", 0o300))
	defer os.Chmod(w.home+"/d", 0o700)
	_, err := w.append("d/f", "more")
	expect.True(t, err == nil && cat(t, w.home+"/d/f") == "textmore", "append to what is there: %v", err)
	expect.Is(t, expect.Err(w.append("d/new", "more")), chat.ErrDenied, "append to what is not there")
	expect.True(t, expect.Err(os.Lstat(w.home+"/d/new")) != nil,
		"a call that was refused made the file")
}

// TestConfined: the tools do all their work below Landlock that allows the
// workspace and /proc and nothing else, and are refused the rest by it.
func TestConfined(t *testing.T) {
	need(t, landlock.ABI() >= 2, "Landlock ABI 2: below it nothing may be renamed")
	w := newWorld(t)
	out, err := child(t, "confined", "CHATD_FILES_DIR="+w.home, "CHATD_FILES_OUT="+w.out).Output()
	must.True(t, err == nil && strings.TrimSpace(string(out)) == "ok", "%v: %s", err, out)
	if cat(t, w.home+"/a/b/f") != "ONE\ntwo\n" || strings.Join(ls(t, w.home+"/a/b"), " ") != "f" || cat(t, w.out+"/secret") != secret {
		t.Errorf("it left %q in %v", cat(t, w.home+"/a/b/f"), ls(t, w.home+"/a/b"))
	}
}

func confinedChild() {
	home, out := os.Getenv("CHATD_FILES_DIR"), os.Getenv("CHATD_FILES_OUT")
	_, err := landlock.Enforce(landlock.Rules{Write: []string{home}, Read: []string{"/proc"}}, 2, false)
	check(err)
	tools, err := Open(filewire.Options{Workspace: home, Unrestricted: true})
	check(err)
	w := world{Tools: tools}
	check(expect.Err(w.write("a/b/f", "once")))
	check(expect.Err(w.write("a/b/f", "one\n")))
	check(expect.Err(w.append("a/b/f", "two\n")))
	large := filewire.WriteFile{Path: "large", Stream: true}
	check(expect.Err(w.AppendFile(large, io.LimitReader(zeros{}, 2*filewire.MaxPiece))))
	check(expect.Err(w.edit("a/b/f", "one", "ONE")))
	if got, _, err := w.read(filewire.ReadFile{Path: "a/b/f"}); err != nil || got != "ONE\ntwo\n" {
		panic(err)
	}
	if got, _, err := w.list(filewire.ListDir{Path: "a"}); err != nil || got != "DIR:  b\n" {
		panic(err)
	}
	_, _, e1 := w.read(filewire.ReadFile{Path: out + "/secret"})
	_, e2 := w.write(out+"/secret", "x")
	_, e3 := w.append(out+"/new", "x")
	_, _, e4 := w.list(filewire.ListDir{Path: out})
	for _, err := range []error{e1, e2, e3, e4} {
		var d *filewire.Denial
		if !errors.As(err, &d) || d.Rule != filewire.RuleKernel || !errors.Is(err, chat.ErrDenied) {
			panic(err)
		}
	}
	os.Stdout.WriteString("ok\n")
}
