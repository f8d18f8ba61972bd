package files

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/landlock"
	"github.com/chatd/chatd/test/must"
)

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
	_, err = w.write("a/b/f", "once")
	check(err)
	_, err = w.write("a/b/f", "one\n")
	check(err)
	_, err = w.append("a/b/f", "two\n")
	check(err)
	_, err = w.AppendFile(filewire.WriteFile{Path: "large", Stream: true}, io.LimitReader(zeros{}, 2*filewire.MaxPiece))
	check(err)
	_, err = w.edit("a/b/f", "one", "ONE")
	check(err)
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
