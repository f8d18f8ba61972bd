package files

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestMain also is the processes that the tests start: see childMain.
func TestMain(m *testing.M) {
	if mode := os.Getenv("CHATD_FILES_CHILD"); mode != "" {
		childMain(mode)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// need skips loudly, or fails where everything should be there.
func need(t testing.TB, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "%v", "needs "+what)
	t.Skip("needs " + what)
}

// world is a workspace, a root beside it, and what is outside of both.
type world struct {
	*Tools
	home, tmp, out string
}

const secret = "the secret of another chat\n"

func newWorld(t testing.TB, change ...func(*filewire.Options)) world {
	t.Helper()
	top := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
	w := world{home: top + "/home", tmp: top + "/tmp", out: top + "/outside"}
	for _, d := range []string{w.home, w.tmp, w.out} {
		must.Do(t, os.Mkdir(d, 0o700))
	}
	put1(t, w.out+"/secret", secret)
	opt := filewire.Options{Workspace: w.home, Roots: []string{w.tmp}}
	for _, c := range change {
		c(&opt)
	}
	w.Tools = must.Get(Open(opt))(t)
	t.Cleanup(func() { expect.NoError(t, w.Close()) })
	return w
}

func put1(t testing.TB, name, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(content), 0o600))
}

func link(t testing.TB, target, name string) {
	t.Helper()
	must.Do(t, os.Symlink(target, name))
}

func mkdir(t testing.TB, name string) {
	t.Helper()
	must.Do(t, os.MkdirAll(name, 0o700))
}

// cat reads a file past the tools.
func cat(t testing.TB, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(name))(t)
	return string(b)
}

func ls(t testing.TB, dir string) []string {
	t.Helper()
	d := must.Get(os.ReadDir(dir))(t)
	var names []string
	for _, e := range d {
		names = append(names, e.Name())
	}
	return names
}

func (w world) read(a filewire.ReadFile) (string, filewire.Answer, error) {
	var b bytes.Buffer
	out, err := w.ReadFile(a, func(filewire.Answer) io.Writer { return &b })
	return b.String(), out, err
}

func (w world) list(a filewire.ListDir) (string, filewire.Answer, error) {
	var b bytes.Buffer
	out, err := w.ListDir(a, func(filewire.Answer) io.Writer { return &b })
	return b.String(), out, err
}

func (w world) write(path, content string) (filewire.Answer, error) {
	return w.WriteFile(filewire.WriteFile{Path: path, Content: &content}, nil)
}

func (w world) append(path, content string) (filewire.Answer, error) {
	return w.AppendFile(filewire.WriteFile{Path: path, Content: &content}, nil)
}

func (w world) edit(path, old, new string) (filewire.Answer, error) {
	return w.EditFile(filewire.EditFile{Path: path, OldText: old, NewText: new})
}

// each calls every tool on a path.
func (w world) each(path, old string) map[filewire.Tool]error {
	return map[filewire.Tool]error{
		filewire.ReadFileTool:   expect.Err(w.read(filewire.ReadFile{Path: path})),
		filewire.WriteFileTool:  expect.Err(w.write(path, "x")),
		filewire.AppendFileTool: expect.Err(w.append(path, "x")),
		filewire.EditFileTool:   expect.Err(w.edit(path, old, "x")),
		filewire.ListDirTool:    expect.Err(w.list(filewire.ListDir{Path: path})),
	}
}

// has wants these names and no others in the workspace.
func (w world) has(t testing.TB, names ...string) {
	t.Helper()
	got := ls(t, w.home)
	expect.True(t, slices.Equal(got, names), "left %v, want %v", got, names)
}

// wantDenied wants a denial by rule, and the words that the caller gets.
func wantDenied(t *testing.T, err error, rule, message string) {
	t.Helper()
	var d *filewire.Denial
	must.True(t, errors.As(err, &d) && errors.Is(err, chat.ErrDenied), "got %v, want a denial", err)
	must.True(t, d.Rule == rule && err.Error() == message,
		"denied by %q with %q, want %q with %q", d.Rule, err, rule, message)
	must.True(t, d.Path != "" && d.Op != "" && d.Tool != "",
		"the denial %+v does not say what was denied", d)
}

func wantError(t *testing.T, err error, kind error, message string) {
	t.Helper()
	must.True(t, errors.Is(err, kind) && err.Error() == message,
		"got %v, want %q of kind %v", err, message, kind)
}

// TestMessages: arguments, results and messages are those of PicoClaw's page.
func TestMessages(t *testing.T) {
	w := newWorld(t)
	a, err := w.write("output/results.txt", "Analysis complete\nTotal: 42 items")
	must.True(t, err == nil && a.Message == "File written: output/results.txt",
		"write_file: %q, %v", a.Message, err)
	got, _, err := w.read(filewire.ReadFile{Path: "output/results.txt"})
	must.True(t, err == nil && got == "Analysis complete\nTotal: 42 items", "read_file: %q, %v", got, err)
	a, err = w.edit("output/results.txt", "42", "43")
	must.True(t, err == nil && a.Message == "File edited: output/results.txt",
		"edit_file: %q, %v", a.Message, err)
	a, err = w.append("output/results.txt", ".")
	must.True(t, err == nil && a.Message == "Appended to output/results.txt",
		"append_file: %q, %v", a.Message, err)
	got = cat(t, w.home+"/output/results.txt")
	must.True(t, got == "Analysis complete\nTotal: 43 items.", "the file holds %q", got)
	mkdir(t, w.home+"/src/components")
	mkdir(t, w.home+"/src/utils")
	put1(t, w.home+"/src/main.go", "")
	if got, _, err := w.list(filewire.ListDir{Path: "src"}); err != nil || got != "DIR:  components\nFILE: main.go\nDIR:  utils\n" {
		t.Fatalf("list_dir: %q, %v", got, err)
	}
	got, _, err = w.list(filewire.ListDir{})
	must.True(t, err == nil && got == "DIR:  output\nDIR:  src\n", "list_dir of nothing: %q, %v", got, err)
	_, _, err = w.read(filewire.ReadFile{Path: "nothing"})
	wantError(t, err, chat.ErrNotFound, "failed to read file: file not found")
	_, _, err = w.read(filewire.ReadFile{Path: w.out + "/secret"})
	wantDenied(t, err, filewire.RuleWorkspace, "access denied: path is outside the workspace")
	_, err = w.edit("output/results.txt", "absent", "")
	wantError(t, err, chat.ErrInvalid, "old_text not found in file. Make sure it matches exactly")
	_, err = w.edit("output/results.txt", "l", "")
	wantError(t, err, chat.ErrInvalid, "old_text appears 3 times. Please provide more context to make it unique")
}

// TestArguments: invalid arguments are refused before anything is opened.
func TestArguments(t *testing.T) {
	w := newWorld(t)
	long, bad, content := strings.Repeat("x", filewire.MaxPath+1), "a\xff", "x"
	for name, err := range map[string]error{
		"empty path":        filewire.ReadFile{}.Validate(),
		"long path":         filewire.ReadFile{Path: long}.Validate(),
		"NUL":               filewire.ReadFile{Path: "a\x00b"}.Validate(),
		"no UTF-8":          filewire.ReadFile{Path: bad}.Validate(),
		"negative offset":   filewire.ReadFile{Path: "a", Offset: -1}.Validate(),
		"far offset":        filewire.ReadFile{Path: "a", Offset: filewire.MaxOffset + 1}.Validate(),
		"negative length":   filewire.ReadFile{Path: "a", Length: -1}.Validate(),
		"bytes and lines":   filewire.ReadFile{Path: "a", Offset: 1, Line: 1}.Validate(),
		"more than a page":  filewire.ReadFile{Path: "a", Length: filewire.MaxPage + 1}.Validate(),
		"no content":        filewire.WriteFile{Path: "a"}.Validate(),
		"content twice":     filewire.WriteFile{Path: "a", Content: &content, Stream: true}.Validate(),
		"content no UTF-8":  filewire.WriteFile{Path: "a", Content: &bad}.Validate(),
		"write, empty path": filewire.WriteFile{Content: &content}.Validate(),
		"old_text empty":    filewire.EditFile{Path: "a"}.Validate(),
		"texts too long":    filewire.EditFile{Path: "a", OldText: strings.Repeat("x", filewire.MaxText), NewText: "y"}.Validate(),
		"new_text no UTF-8": filewire.EditFile{Path: "a", OldText: "x", NewText: bad}.Validate(),
		"limit":             filewire.ListDir{Limit: filewire.MaxEntries + 1}.Validate(),
		"negative limit":    filewire.ListDir{Limit: -1}.Validate(),
		"after too long":    filewire.ListDir{After: long}.Validate(),
	} {
		expect.True(t, errors.Is(err, chat.ErrInvalid) && strings.HasPrefix(err.Error(), "cannot "),
			"%s: %v", name, err)
	}
	err := (filewire.WriteFile{Path: "f"}).Validate()
	expect.True(t, strings.Contains(err.Error(), `"f": content is missing`), "%v", err)
	expect.Is(t, expect.Err(w.write("long", strings.Repeat("x", filewire.MaxText+1))), chat.ErrInvalid,
		"content of more than MaxText")
	w.has(t)
	expect.Is(t, expect.Err(w.write(strings.Repeat("x", 300), "x")), chat.ErrInvalid,
		"a name of 300 bytes")
}

// TestOpen: roots that are none, and patterns that do not compile.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	put1(t, dir+"/file", "")
	for _, opt := range []filewire.Options{
		{Workspace: "relative"}, {Workspace: dir + "/none"}, {Workspace: dir + "/file"},
		{Workspace: dir, Roots: []string{dir + "/none"}},
		{Workspace: dir, AllowRead: []string{"("}}, {Workspace: dir, AllowWrite: []string{"a)(b"}},
	} {
		if tools, err := Open(opt); err == nil {
			tools.Close()
			t.Errorf("Open(%+v) succeeded", opt)
		}
	}
}

// atOnce wants f to return: a tool that waits for somebody would hang here.
func atOnce(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
}

// TestNotRegular: a FIFO, a socket, a device and a directory are errors at once,
// for each tool that takes a file.
func TestNotRegular(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) { o.Unrestricted = true })
	must.Do(t, syscall.Mkfifo(w.home+"/fifo", 0o600))
	fd := must.Get(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
	defer syscall.Close(fd)
	t.Chdir(w.home)
	must.Do(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: "socket"}))
	mkdir(t, w.home+"/dir")
	link(t, "fifo", w.home+"/link")
	for path, what := range map[string]string{"fifo": "FIFO", "link": "FIFO", "socket": "socket", "/dev/null": "device",
		"/dev/tty": "device", "dir": "directory", ".": "directory", "/": "directory"} {
		atOnce(t, func() {
			for tool, err := range w.each(path, "x") {
				says := "it is a " + what + ", not a regular file"
				if tool == filewire.ListDirTool {
					says = ""
				}
				if what == "directory" && says == "" {
					continue
				}
				expect.True(t, errors.Is(err, chat.ErrInvalid) && strings.Contains(err.Error(), says),
					"%s on %s: %v", tool, path, err)
			}
		})
	}
	w.has(t, "dir", "fifo", "link", "socket")
}

// TestOpenFiles: no tool leaves a descriptor open, whatever came of it.
func TestOpenFiles(t *testing.T) {
	w := newWorld(t)
	mkdir(t, w.home+"/d/e")
	link(t, w.out, w.home+"/d/out")
	link(t, "loop", w.home+"/loop")
	put1(t, w.home+"/d/f", "one two two")
	runtime.GC() // closes what other tests left, and from here on nothing
	time.Sleep(10 * time.Millisecond)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before := len(ls(t, "/proc/self/fd"))
	for range 20 {
		for _, p := range []string{"d/f", "d/none/x", "d/out/secret", "loop", "d", "d/f/x", "../x"} {
			w.read(filewire.ReadFile{Path: p})
			w.edit(p, "one", "one")
			w.edit(p, "two", "one")
			w.list(filewire.ListDir{Path: p})
			w.append(p, "")
			w.WriteFile(filewire.WriteFile{Path: p, Stream: true}, io.LimitReader(failingReader, 1))
			w.AppendFile(filewire.WriteFile{Path: p, Stream: true}, io.LimitReader(failingReader, 1))
		}
	}
	for range 20 {
		tools, err := Open(filewire.Options{Workspace: w.home, Roots: []string{w.tmp}, ReadOutside: true})
		must.Do(t, err)
		must.Do(t, tools.Close())
		_, err = Open(filewire.Options{Workspace: w.home, Roots: []string{w.home + "/d/f"}})
		must.True(t, err != nil, "opened a file as a root")
	}
	after := len(ls(t, "/proc/self/fd"))
	expect.True(t, after <= before, "%d descriptors before, %d after", before, after)
}

var failingReader = iotest.ErrReader(errors.New("the sender went away"))

// childMain is a process that a test started; mode says what for.
func childMain(mode string) {
	switch mode {
	case "kill":
		killChild()
	case "confined":
		confinedChild()
	case "memory":
		memoryChild()
	case "powercut":
		powerCutChild()
	case "append":
		appendChild()
	}
}

// childWorld is the workspace that a child works in.
func childWorld() world {
	tools, err := Open(filewire.Options{Workspace: os.Getenv("CHATD_FILES_DIR")})
	check(err)
	return world{Tools: tools}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// child is this program again, in mode, with arguments by environment.
func child(t *testing.T, mode string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), "CHATD_FILES_CHILD="+mode), env...)
	cmd.Stderr = os.Stderr
	return cmd
}
