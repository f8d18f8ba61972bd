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
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// speak sends a request, which may be longer than the pipe holds, and speaks with the tool.
func speak(w io.WriteCloser, r io.Reader, req filewire.Request, x filewire.Exchange) (filewire.Answer, error) {
	go func() { _ = filewire.Send(w, req) }() // a tool that answers early does not read all of it
	return filewire.Speak(w, r, x)
}

// TestChecked: both names are checked before anything is opened, made or sent for.
func TestChecked(t *testing.T) {
	var asked []string
	deny := ""
	w := newWorld(t)
	w.opt.Check = func(op filewire.Op, path string) *filewire.Denial {
		asked = append(asked, fmt.Sprint(op, " ", strings.TrimPrefix(path, w.home)))
		if path == w.home+deny {
			return &filewire.Denial{Op: op, Path: path, Rule: "mine", Place: "rules.yaml:7"}
		}
		return nil
	}
	put1(t, w.home+"/f", "text")
	link(t, "f", w.home+"/l")
	var got bytes.Buffer
	x := filewire.Exchange{Begin: func(filewire.Answer) io.Writer { return &got }, Limit: 100}
	a, err := w.exchange(t, filewire.ReadFileTool, filewire.ReadFile{Path: "~/l"}, x)
	if err != nil || got.String() != "text" || a.Path != w.home+"/f" ||
		fmt.Sprint(asked) != "[read /l read /f]" {
		t.Errorf("read: %+v, %v, asked %q", a, err, asked)
	}
	for _, deny = range []string{"/l", "/f"} {
		got.Reset()
		_, err := w.exchange(t, filewire.ReadFileTool, filewire.ReadFile{Path: "l"}, x)
		var d *filewire.Denial
		expect.True(t, errors.As(err, &d) && d.Place == "rules.yaml:7" && got.Len() <= 0,
			"%s denied: %v, %q", deny, err, got.String())
	}
	deny = "/new/dir/f"
	for _, tool := range []filewire.Tool{filewire.WriteFileTool, filewire.AppendFileTool} {
		body := &unread{}
		args := filewire.WriteFile{Path: "new/dir/f", Stream: true}
		_, err := w.exchange(t, tool, args, filewire.Exchange{Body: body})
		expect.True(t, errors.Is(err, chat.ErrDenied) && body.reads <= 0 && len(ls(t, w.home)) == 2,
			"%s: %v after %d reads, left %v", tool, err, body.reads, ls(t, w.home))
	}
}

// TestDeniedBeforeTheAct: whichever check of a tool denies, the call is denied and nothing is made,
// changed or removed. Only a diff is left out, or a file written over.
func TestDeniedBeforeTheAct(t *testing.T) {
	for _, tool := range []filewire.Tool{filewire.ReadFileTool, filewire.ListDirTool, filewire.EditFileTool, filewire.AppendFileTool, filewire.WriteFileTool} {
		for _, name := range []string{"f", "l", "d", "new", "new/dir/f"} {
			for no := 1; deniedAt(t, tool, name, no); no++ {
			}
		}
	}
}

// deniedAt denies a tool its check of that number, and reports whether there was one.
func deniedAt(t *testing.T, tool filewire.Tool, name string, no int) bool {
	t.Helper()
	var args filewire.Args = filewire.WriteFile{Path: name, Stream: true}
	switch tool {
	case filewire.ReadFileTool:
		args = filewire.ReadFile{Path: name}
	case filewire.ListDirTool:
		args = filewire.ListDir{Path: name}
	case filewire.EditFileTool:
		args = filewire.EditFile{Path: name, OldText: "text", NewText: "x"}
	}
	w := newWorld(t)
	put1(t, w.home+"/f", "text")
	mkdir(t, w.home+"/d")
	link(t, "f", w.home+"/l")
	asked, before, denied, other := 0, treeOf(t, w.home), filewire.Op(""), false
	w.opt.Check = func(op filewire.Op, path string) *filewire.Denial {
		if asked++; asked == no {
			denied, other = op, strings.Contains(path, "/.tmp-")
			return &filewire.Denial{Op: op, Path: path, Rule: "mine"}
		}
		return nil
	}
	body, begin := strings.NewReader("more"), func(filewire.Answer) io.Writer { return io.Discard }
	a, err := w.exchange(t, tool, args, filewire.Exchange{Body: body, Begin: begin, Limit: 100})
	if tool == filewire.EditFileTool && denied == filewire.Read {
		expect.True(t, err == nil && a.Diff == "" && a.DiffOmitted != "",
			"an edit of what may not be read: %+v, %v", a, err)
		return true
	}
	if other && err == nil { // it was written over, and not replaced
		return true
	}
	if after := treeOf(t, w.home); asked >= no && (!errors.Is(err, chat.ErrDenied) || after != before) {
		t.Errorf("%s %s, no to check %d: %v, and now\n%swas\n%s", tool, name, no, err, after, before)
	}
	return asked >= no
}

// treeOf is all below dir: names, inodes, times and content.
func treeOf(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
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
	}))
	return b.String()
}

type unread struct{ reads int }

func (u *unread) Read([]byte) (int, error) { u.reads++; return 0, io.EOF }

// TestHostileMessages: a tool that sends what no tool sends gets no content, and no good end.
func TestHostileMessages(t *testing.T) {
	fine := `{"size":0,"bytes":0}` + "\n"
	for name, said := range map[string]string{
		"a question":    `{"ask":{"op":"read","path":"/x"}}` + "\n" + fine,
		"links":         `{"links":[{"n":0,"to":"/x"}]}` + "\n" + fine,
		"content twice": `{"send":true}` + "\n" + `{"send":true}` + "\n" + fine,
		"a long message": `{"size":0,"bytes":0,"message":"` + strings.Repeat("x", 3*filewire.MaxPath) +
			`"}` + "\n",
	} {
		atOnce(t, func() {
			var got bytes.Buffer
			x := filewire.Exchange{Body: &unread{}, Begin: func(filewire.Answer) io.Writer { return &got }, Limit: 10}
			req := filewire.Request{Tool: filewire.ReadFileTool}
			a, err := speak(discard{}, strings.NewReader(said), req, x)
			expect.True(t, err != nil && got.Len() <= 0, "%s: %+v, %v, %d bytes", name, a, err, got.Len())
		})
	}
}

// TestResolve: the names that links lead to, of what is there and what is not.
func TestResolve(t *testing.T) {
	w := newWorld(t)
	must.Do(t, os.MkdirAll(w.home+"/d/e", 0o700))
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
	got := w.resolved(t, names)
	expect.True(t, maps.Equal(got, want), "%d names, want %d", len(got), len(want))
	err := filewire.Send(discard{}, filewire.Request{Tool: filewire.ResolveTool, Links: []string{strings.Repeat("/x", filewire.MaxNames)}})
	expect.Is(t, err, chat.ErrUnsupported, "too many names")
	fine := `{"size":0,"bytes":0}` + "\n"
	for _, lie := range []string{
		"", "x\n", `{"size":-1,"bytes":0}` + "\n",
		strings.Repeat(`{"links":[{"n":0,"to":"/`+strings.Repeat("x", filewire.MaxPath)+`"}]}`+"\n", filewire.MaxLinkReport/filewire.MaxPath) + fine,
	} {
		got, err := filewire.ReadTargets(strings.NewReader(lie), []string{"/a"})
		expect.True(t, err != nil, "%.60q is believed: %v", lie, got)
	}
}

// resolved is where names lead, as chatd-root is told.
func (w world) resolved(t *testing.T, names []string) map[string]string {
	t.Helper()
	req := must.Get(filewire.NewRequest(filewire.ResolveTool, filewire.Resolve{}))(t)
	req.Links = names
	in, out, served := w.serve(t)
	must.Do(t, filewire.Send(in, req))
	all, err := filewire.ReadTargets(out, names)
	must.Do(t, errors.Join(err, <-served))
	got := map[string]string{}
	for name, l := range all {
		if l.To != filepath.Clean(name) {
			got[name] = l.To
		}
	}
	return got
}

// TestHostileTargets: a tool that tells nonsense of links is not believed.
func TestHostileTargets(t *testing.T) {
	for _, lie := range []string{
		`{"links":[{"n":1,"to":"/x"}]}`, `{"links":[{"n":-1,"to":"/x"}]}`,
		`{"links":[{"n":0,"to":"x"}]}`, `{"links":[{"n":0,"to":"/x","no":"x"}]}`, `{"links":[{"n":0,"to":""}]}`,
		`{"links":[{"n":0,"to":"/x"},{"n":0,"to":"/y"}]}`, `{"links":[{"n":0,"to":"/\u0000"}]}`,
		`{"links":[{"n":0,"to":"/` + strings.Repeat("x", 2*filewire.MaxPath) + `"}]}`,
	} {
		in := strings.NewReader(lie + "\n" + `{"size":0,"bytes":0}` + "\n")
		expect.True(t, expect.Err(filewire.ReadTargets(in, []string{"/a"})) != nil,
			"%.60s is believed", lie)
	}
}

// TestRulesOfTheTool: a tool compiles its rules itself, and a rule about a link is about its target
// too. Each operation is decided by the rules for it alone.
func TestRulesOfTheTool(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/d")
	put1(t, w.home+"/d/f", "text")
	put1(t, w.home+"/edited", "text")
	link(t, "d", w.home+"/l")
	text := `access: {useDefaults: false, rules: [{deny: "~/l/f"}, {deny: "~/edited", ops: [read, write]},
  {deny: "~/shell", ops: [bash]}]}`
	rules := must.Get(rulefile.Load("r.yaml", []byte(text)))(t)
	tools, err := Open(filewire.Options{Workspace: w.home, Rules: &filewire.Rules{Compiled: rules.Compiled()}})
	must.Do(t, err)
	defer tools.Close()
	_, err = tools.ReadFile(filewire.ReadFile{Path: "d/f"}, func(filewire.Answer) io.Writer { return io.Discard })
	var d *filewire.Denial
	expect.True(t, errors.As(err, &d) && d.Rule == "deny ~/l/f" && strings.HasPrefix(d.Place, "r.yaml:"),
		"the target of a denied link: %v", err)
	new := "new"
	_, err = tools.WriteFile(filewire.WriteFile{Path: "edited", Content: &new}, nil)
	expect.True(t, errors.As(err, &d), "write: %v", err)
	a, err := tools.EditFile(filewire.EditFile{Path: "edited", OldText: "text", NewText: "x"})
	expect.True(t, err == nil && a.Diff == "" && a.DiffOmitted != "",
		"edit is not denied, and its diff would say what may not be read: %+v, %v", a, err)
	expect.Is(t, expect.Err(tools.WriteFile(filewire.WriteFile{Path: "shell", Content: &new}, nil)), nil,
		"a rule about commands")
}
