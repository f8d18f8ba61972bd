package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// speak sends a request, which may be longer than the pipe holds, and speaks with the tool.
func speak(w io.WriteCloser, r io.Reader, req Request, x Exchange) (Answer, error) {
	go func() { _ = Send(w, req) }() // a tool that answers early does not read all of it
	return Speak(w, r, x)
}

// exchange is a request through both ends of the wire, with what x says.
func (w world) exchange(t testing.TB, tool Tool, args interface{ Validate() error }, x Exchange, links ...string) (Answer, error) {
	t.Helper()
	req, err := NewRequest(tool, args)
	if err != nil {
		t.Fatal(err)
	}
	req.Links = links
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = w.Serve(inR, outW)
		inR.Close()
		outW.Close()
	}()
	a, err := speak(inW, outR, req, x)
	outR.Close()
	<-served
	return a, err
}

// TestAsk: the caller's check is asked about both names before anything is opened,
// made or sent, and what it denies comes back as its own denial.
func TestAsk(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/f", "text")
	link(t, "f", w.home+"/l")
	var asked []string
	check := func(deny string) Check {
		asked = nil
		return func(op Op, path string) *Denial {
			asked = append(asked, fmt.Sprint(op, " ", strings.TrimPrefix(path, w.home)))
			if path == w.home+deny {
				return &Denial{Op: op, Path: path, Rule: "mine", Place: "rules.yaml:7"}
			}
			return nil
		}
	}
	var got bytes.Buffer
	begin := func(Answer) io.Writer { return &got }
	a, err := w.exchange(t, ReadFileTool, ReadFile{Path: "l"}, Exchange{Begin: begin, Limit: 100, Check: check("-")})
	if err != nil || got.String() != "text" || a.Path != w.home+"/f" || fmt.Sprint(asked) != "[read /l read /f]" {
		t.Errorf("read: %+v, %v, asked %q", a, err, asked)
	}
	for _, deny := range []string{"/l", "/f"} {
		got.Reset()
		_, err := w.exchange(t, ReadFileTool, ReadFile{Path: "l"}, Exchange{Begin: begin, Limit: 100, Check: check(deny)})
		var d *Denial
		if !errors.As(err, &d) || d.Place != "rules.yaml:7" || !errors.Is(err, chat.ErrDenied) || got.Len() > 0 {
			t.Errorf("%s denied: %v, %q", deny, err, got.String())
		}
	}
	for _, tool := range []Tool{WriteFileTool, AppendFileTool} {
		body := &unread{}
		_, err := w.exchange(t, tool, WriteFile{Path: "new/dir/f", Stream: true}, Exchange{Body: body, Check: check("/new/dir/f")})
		if !errors.Is(err, chat.ErrDenied) || body.reads > 0 || len(ls(t, w.home)) != 2 {
			t.Errorf("%s: %v after %d reads, left %v", tool, err, body.reads, ls(t, w.home))
		}
		a, err := w.exchange(t, tool, WriteFile{Path: "l", Stream: true}, Exchange{Body: strings.NewReader("more"), Check: check("-")})
		if err != nil || a.Path != w.home+"/f" {
			t.Errorf("%s: %+v, %v", tool, a, err)
		}
	}
}

// TestDeniedBeforeTheAct: whichever of its questions a tool is told no to, the call is
// denied and nothing is made, changed or removed, unless the question was where new content
// is gathered, and there is another place.
func TestDeniedBeforeTheAct(t *testing.T) {
	calls := map[Tool]func(name string) interface{ Validate() error }{
		ReadFileTool: func(name string) interface{ Validate() error } { return ReadFile{Path: name} },
		ListDirTool:  func(name string) interface{ Validate() error } { return ListDir{Path: name} },
		EditFileTool: func(name string) interface{ Validate() error } {
			return EditFile{Path: name, OldText: "text", NewText: "x"}
		},
		AppendFileTool: func(name string) interface{ Validate() error } { return WriteFile{Path: name, Stream: true} },
		WriteFileTool:  func(name string) interface{ Validate() error } { return WriteFile{Path: name, Stream: true} },
	}
	for tool, args := range calls {
		for _, name := range []string{"f", "l", "d", "new", "new/dir/f"} {
			for no := 1; ; no++ {
				w := newWorld(t)
				put1(t, w.home+"/f", "text")
				mkdir(t, w.home+"/d")
				link(t, "f", w.home+"/l")
				asked, before, denied := 0, treeOf(t, w.home), Op("")
				check := func(op Op, path string) *Denial {
					if asked++; asked == no {
						denied = op
						return &Denial{Op: op, Path: path, Rule: "mine"}
					}
					return nil
				}
				_, err := w.exchange(t, tool, args(name), Exchange{Body: strings.NewReader("more"), Begin: func(Answer) io.Writer { return io.Discard }, Limit: 100, Check: check})
				if asked < no {
					break
				}
				otherWay := err == nil && tool != ReadFileTool && tool != ListDirTool && denied == Bash
				if after := treeOf(t, w.home); !otherWay && (!errors.Is(err, chat.ErrDenied) || after != before) {
					t.Errorf("%s %s, no to question %d: %v, and now\n%swas\n%s", tool, name, no, err, after, before)
				}
			}
		}
	}
}

// treeOf is all below dir: names, inodes, times and content.
func treeOf(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		content := ""
		if e.Type().IsRegular() {
			content = cat(t, p)
			fmt.Fprintf(&b, "%d.%09d ", st.Mtim.Sec, st.Mtim.Nsec)
		}
		fmt.Fprintf(&b, "%s %d %o %q\n", p, st.Ino, st.Mode, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTempDenied: where the kernel's walls close the name of the file beside the target,
// or of the target itself, the rules are asked first and nothing is made.
func TestTempDenied(t *testing.T) {
	for _, c := range []struct {
		tool   Tool
		target string // what the rules close
		write  bool   // whether the tool gets through
	}{
		{WriteFileTool, ".tmp-", false}, {WriteFileTool, "new/dir/f", true}, {AppendFileTool, "new/dir/f", false}, {AppendFileTool, ".tmp-", true},
	} {
		w := newWorld(t)
		check := func(op Op, path string) *Denial {
			if op == Bash && strings.HasPrefix(strings.TrimPrefix(path, w.home+"/"), c.target) || op == Bash && strings.Contains(path, "/"+c.target) {
				return &Denial{Op: op, Path: path, Rule: "mine"}
			}
			return nil
		}
		body := &unread{}
		_, err := w.exchange(t, c.tool, WriteFile{Path: "new/dir/f", Stream: true}, Exchange{Body: body, Check: check})
		var d *Denial
		if c.write && err != nil || !c.write && (!errors.As(err, &d) || d.Op != Bash || body.reads > 0 || len(ls(t, w.home)) > 0) {
			t.Errorf("%s, %s closed: %v after %d reads, left %v", c.tool, c.target, err, body.reads, ls(t, w.home))
		}
	}
}

type unread struct{ reads int }

func (u *unread) Read([]byte) (int, error) { u.reads++; return 0, io.EOF }

// TestHostileQuestions: a tool that asks what no tool asks gets nothing, and after
// a denial neither content nor a good end.
func TestHostileQuestions(t *testing.T) {
	ask := `{"ask":{"op":"read","path":"/x"}}` + "\n"
	fine := `{"size":0,"bytes":0}` + "\n"
	deny := func(Op, string) *Denial { return &Denial{Op: Read, Path: "/x", Rule: "mine"} }
	for _, c := range []struct {
		name, said string
		check      Check
		denied     bool
	}{
		{"endless questions", strings.Repeat(ask, maxQuestions+1) + fine, nil, false},
		{"a relative path", `{"ask":{"op":"read","path":"x"}}` + "\n" + fine, nil, false},
		{"no path", `{"ask":{"op":"read"}}` + "\n" + fine, nil, false},
		{"a NUL", `{"ask":{"op":"read","path":"/\u0000"}}` + "\n" + fine, nil, false},
		{"a long path", `{"ask":{"op":"read","path":"/` + strings.Repeat("x", 2*MaxPath) + `"}}` + "\n" + fine, nil, false},
		{"another op", `{"ask":{"op":"make","path":"/x"}}` + "\n" + fine, nil, false},
		{"content twice", `{"send":true}` + "\n" + `{"send":true}` + "\n" + fine, nil, false},
		{"success after a denial", ask + fine, deny, true},
		{"content after a denial", ask + `{"size":1,"bytes":0,"content":true}` + "\n\x00\x00\x00\x01a\x00\x00\x00\x00" + `{"size":1,"bytes":1}` + "\n", deny, true},
		{"send after a denial", ask + `{"send":true}` + "\n" + fine, deny, true},
		{"another denial after it", ask + `{"size":0,"bytes":0,"failure":{"kind":"denied","message":"x","denial":{"op":"read","path":"/y","rule":"r"}}}` + "\n", deny, true},
		{"a long message", `{"size":0,"bytes":0,"message":"` + strings.Repeat("x", 3*MaxPath) + `"}` + "\n", nil, false},
	} {
		atOnce(t, func() {
			var got bytes.Buffer
			var body unread
			a, err := speak(discard{}, strings.NewReader(c.said), Request{Tool: ReadFileTool}, Exchange{
				Body: &body, Begin: func(Answer) io.Writer { return &got }, Limit: 10, Check: c.check,
			})
			var d *Denial
			if err == nil || got.Len() > 0 || errors.As(err, &d) != c.denied || c.denied && (d.Rule != "mine" || body.reads > 0) {
				t.Errorf("%s: %+v, %v, %d bytes", c.name, a, err, got.Len())
			}
		})
	}
}

// TestResolve: the names that links lead to, of what is there and what is not.
func TestResolve(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(w.home+"/d/e", 0o700); err != nil {
		t.Fatal(err)
	}
	link(t, "d", w.home+"/in")
	link(t, w.out, w.home+"/out")
	link(t, "loop", w.home+"/loop")
	h := w.home
	names := []string{h + "/in/e/x", h + "/in/../y", h + "/out/secret", h + "/loop/x", "/nowhere", "/"}
	want := map[string]string{names[0]: h + "/d/e/x", names[2]: w.out + "/secret"}
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("%s/in/%d", h, i))
		want[names[len(names)-1]] = fmt.Sprintf("%s/d/%d", h, i)
	}
	if got := w.resolved(t, names); !maps.Equal(got, want) {
		t.Errorf("%d names, want %d", len(got), len(want))
	}
	err := Send(discard{}, Request{Tool: ResolveTool, Links: []string{strings.Repeat("/x", maxNames)}})
	if !errors.Is(err, chat.ErrUnsupported) {
		t.Errorf("too many names: %v", err)
	}
	fine := `{"size":0,"bytes":0}` + "\n"
	for _, lie := range []string{
		"", "x\n", `{"size":-1,"bytes":0}` + "\n",
		strings.Repeat(`{"links":[{"n":0,"to":"/`+strings.Repeat("x", MaxPath)+`"}]}`+"\n", maxLinkReport/MaxPath) + fine,
	} {
		if got, err := ReadTargets(strings.NewReader(lie), []string{"/a"}); err == nil {
			t.Errorf("%.60q is believed: %q", lie, got)
		}
	}
}

// resolved is where names lead, as chatd-root is told.
func (w world) resolved(t *testing.T, names []string) map[string]string {
	t.Helper()
	req, err := NewRequest(ResolveTool, Resolve{})
	if err != nil {
		t.Fatal(err)
	}
	req.Links = names
	inR, inW := pipe(t)
	outR, outW := pipe(t)
	served := make(chan error, 1)
	go func() { served <- errors.Join(w.Serve(inR, outW), outW.Close()) }()
	if err := Send(inW, req); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTargets(outR, names)
	if err := errors.Join(err, <-served); err != nil {
		t.Fatal(err)
	}
	return got
}

// TestLinked: the check that knows where the rules' own names lead is the one that is
// asked, and a tool that tells nonsense of them gets nothing.
func TestLinked(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/d")
	put1(t, w.home+"/d/f", "text")
	link(t, "d", w.home+"/l")
	for rule, denied := range map[string]bool{"/l/f": true, "/d/other": false} {
		x := Exchange{Begin: func(Answer) io.Writer { return io.Discard }, Limit: 100}
		real := map[string]string{}
		x.Linked = func(all []Link) (err error) {
			real, err = Targets([]string{w.home + rule}, all)
			return err
		}
		x.Check = func(op Op, path string) *Denial {
			if path == real[w.home+rule] {
				return &Denial{Op: op, Path: path, Rule: "mine"}
			}
			return nil
		}
		if _, err := w.exchange(t, ReadFileTool, ReadFile{Path: "d/f"}, x, w.home+rule); errors.Is(err, chat.ErrDenied) != denied {
			t.Errorf("a rule about %s: %v", rule, err)
		}
	}
	ask, fine := `{"ask":{"op":"read","path":"/x"}}`+"\n", `{"size":0,"bytes":0}`+"\n"
	for _, lie := range []string{
		`{"links":[{"n":1,"to":"/x"}]}`, `{"links":[{"n":-1,"to":"/x"}]}`, `{"links":[{"n":0,"to":"x"}]}`, `{"links":[{"n":0,"to":""}]}`,
		`{"links":[{"n":0,"to":"/x"},{"n":0,"to":"/y"}]}`, `{"links":[{"n":0,"to":"/\u0000"}]}`, `{"links":[{"n":0,"to":"/` + strings.Repeat("x", 2*MaxPath) + `"}]}`,
		ask + `{"links":[{"n":0,"to":"/x"}]}`,
	} {
		x := Exchange{Linked: func(all []Link) error { _, err := Targets([]string{"/a"}, all); return err }}
		if _, err := speak(discard{}, strings.NewReader(lie+"\n"+fine), Request{Tool: ReadFileTool}, x); err == nil {
			t.Errorf("%.60s is believed", lie)
		}
	}
	link := `{"links":[{"n":0,"to":"/x"}]}` + "\n"
	if _, err := speak(discard{}, strings.NewReader(link+fine), Request{Tool: ReadFileTool}, Exchange{}); err == nil {
		t.Error("links that nobody asked for are believed")
	}
}
