package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// called is a request through both ends of the wire.
func (w world) called(t testing.TB, tool filewire.Tool, args interface{ Validate() error }, body io.Reader, limit int64) (string, filewire.Answer, error) {
	t.Helper()
	var content bytes.Buffer
	x := filewire.Exchange{Body: body, Begin: func(filewire.Answer) io.Writer { return &content }, Limit: limit}
	a, err := w.exchange(t, tool, args, x)
	return content.String(), a, err
}

// exchange is a request through both ends of the wire, with what x says.
func (w world) exchange(t testing.TB, tool filewire.Tool, args interface{ Validate() error }, x filewire.Exchange) (filewire.Answer, error) {
	t.Helper()
	req := must.Get(filewire.NewRequest(tool, args))(t)
	in, out, served := w.serve(t)
	a, err := speak(in, out, req, x)
	out.Close()
	e := <-served
	expect.True(t, e == nil || err != nil, "Serve: %v", e)
	return a, err
}

// serve has the tools serve one request; in and out are the caller's ends.
func (w world) serve(t testing.TB) (in, out *os.File, served chan error) {
	t.Helper()
	inR, in := pipe(t)
	out, outW := pipe(t)
	served = make(chan error, 1)
	go func() { served <- errors.Join(w.Serve(inR, outW), inR.Close(), outW.Close()) }()
	return in, out, served
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	return r, w
}

// TestServe: each tool over the wire does what it does when it is called.
func TestServe(t *testing.T) {
	w := newWorld(t)
	content, data := "one\ntwo\n", bytes.Repeat([]byte{0, 0xff, '\n'}, 500_000)
	_, a, err := w.called(t, filewire.WriteFileTool, filewire.WriteFile{Path: "f", Content: &content}, nil, 0)
	must.True(t, err == nil && a.Message == "File written: f" && a.Created, "%+v, %v", a, err)
	got, a, err := w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f", Line: 2}, nil, 100)
	must.True(t, err == nil && got == "two\n" && a.Bytes == 4 && a.Size == 8, "%q, %+v, %v", got, a, err)
	_, a, err = w.called(t, filewire.EditFileTool, filewire.EditFile{Path: "f", OldText: "two", NewText: "2"}, nil, 0)
	must.True(t, err == nil && a.Message == "File edited: f" && strings.Contains(a.Diff, "-two\n+2\n"),
		"%+v, %v", a, err)
	_, a, err = w.called(t, filewire.AppendFileTool, filewire.WriteFile{Path: "f", Stream: true}, bytes.NewReader(data), 0)
	must.True(t, err == nil && a.Message == "Appended to f" && a.Offset == 6 && a.Bytes == int64(len(data)),
		"%+v, %v", a, err)
	got, a, err = w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f", Stream: true}, nil, 1<<30)
	must.True(t, err == nil && got == "one\n2\n"+string(data) && !a.Truncated,
		"%d bytes, %+v, %v", len(got), a, err)
	got, a, err = w.called(t, filewire.ListDirTool, filewire.ListDir{}, nil, 100)
	must.True(t, err == nil && got == "FILE: f\n" && a.Entries == 1, "%q, %+v, %v", got, a, err)
	got, a, err = w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f", Offset: 1 << 40}, nil, 100)
	must.True(t, err == nil && got == "" && a.Bytes == 0, "nothing: %q, %+v, %v", got, a, err)
}

// TestServeFailures: kinds, messages and denials come through as they are.
func TestServeFailures(t *testing.T) {
	w := newWorld(t, func(o *filewire.Options) {
		o.Check = func(op filewire.Op, name string) *filewire.Denial {
			if strings.HasSuffix(name, ".env") {
				return &filewire.Denial{Op: op, Path: name, Rule: "**/.env", Place: "defaults", Layer: "access"}
			}
			return nil
		}
	})
	put1(t, w.home+"/.env", "x")
	_, _, err := w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: ".env"}, nil, 100)
	var d *filewire.Denial
	want := (filewire.Denial{Tool: filewire.ReadFileTool, Op: filewire.Read, Path: w.home + "/.env", Rule: "**/.env", Place: "defaults", Layer: "access"})
	expect.True(t, errors.As(err, &d) && *d == want, "%+v, %v", d, err)
	_, _, err = w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "../outside/secret"}, nil, 100)
	wantDenied(t, err, filewire.RuleWorkspace, pathOutside)
	_, _, err = w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "none"}, nil, 100)
	wantError(t, err, chat.ErrNotFound, "failed to read file: file not found")
	_, _, err = w.called(t, filewire.WriteFileTool, filewire.WriteFile{Path: ".env", Stream: true}, io.LimitReader(zeros{}, 50<<20), 100)
	expect.Is(t, err, chat.ErrDenied, "a refusal while the content is still coming")
	put1(t, w.home+"/f", "12345")
	_, _, err = w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f"}, nil, 4)
	expect.True(t, err != nil && strings.Contains(err.Error(), "more content than the limit"), "more content than the caller takes: %v", err)
	got, _, err := w.called(t, filewire.ReadFileTool, filewire.ReadFile{Path: "f"}, nil, 5)
	expect.True(t, err == nil && got == "12345", "as much as the caller takes: %q, %v", got, err)
	for word, kind := range map[string]error{"invalid": chat.ErrInvalid, "denied": chat.ErrDenied, "not_found": chat.ErrNotFound, "exists": chat.ErrExists,
		"wrong_phase": chat.ErrWrongPhase, "unsupported": chat.ErrUnsupported, "busy": chat.ErrBusy} {
		f := filewire.FailureOf(fmt.Errorf("x: %w", kind))
		expect.True(t, f.Kind == word && errors.Is(f, kind), "%v became %+v", kind, f)
	}
	f := filewire.FailureOf(errors.New("x"))
	expect.True(t, f.Kind == "internal" && f.Unwrap() == nil, "%+v", f)
}

// TestSenderGone: content that its sender could not finish is not written, and the sender's error
// is returned.
func TestSenderGone(t *testing.T) {
	w := newWorld(t)
	put1(t, w.home+"/f", "old")
	for _, tool := range []filewire.Tool{filewire.WriteFileTool, filewire.AppendFileTool} {
		body := io.MultiReader(io.LimitReader(zeros{}, 3<<20), failingReader)
		_, _, err := w.called(t, tool, filewire.WriteFile{Path: "f", Stream: true}, body, 0)
		expect.True(t, err != nil && strings.Contains(err.Error(), "the sender went away"),
			"%s: %v", tool, err)
	}
	expect.True(t, cat(t, w.home+"/f") == "old" && len(ls(t, w.home)) == 1, "left %v", ls(t, w.home))
}

// TestReaderGone: a reader that goes away while a file is sent ends the tool.
func TestReaderGone(t *testing.T) {
	w := newWorld(t)
	must.Do(t, os.WriteFile(w.home+"/f", nil, 0o600))
	must.Do(t, os.Truncate(w.home+"/f", 1<<32))
	r, pw := pipe(t)
	r.Close()
	atOnce(t, func() {
		err := w.Serve(strings.NewReader(`{"tool":"read_file","parameters":{"path":"f","stream":true}}`+"\n"), pw)
		expect.True(t, err != nil, "Serve did not notice")
	})
	pw.Close()
}

// TestRequests: an invalid request gets an answer, and nothing is done.
func TestRequests(t *testing.T) {
	w := newWorld(t)
	for _, line := range []string{
		"", "\n", "x\n", "{}\n", `{"tool":"exec","parameters":{}}` + "\n", `{"tool":"write_file","parameters":{"path":"f","content":"x"}}`,
		`{"tool":"write_file","parameters":{"path":"f","content":"x","mode":511}}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","content":"x"},"more":1}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","content":"x"}} {}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","content":"\ud800"}}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","content":"` + "\xff" + `"}}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","content":7}}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","stream":true}}` + "\n",
		`{"tool":"write_file","parameters":{"path":"f","stream":true}}` + "\n\x00\x00\x00\x05abc",
		`{"tool":"write_file","parameters":{"path":"f","stream":true}}` + "\n\x00\x00\x00\x03abc",
		`{"tool":"write_file","parameters":{"path":"f","stream":true}}` + "\n\xff\xff\xff\xffabc",
		`{"tool":"write_file","parameters":{"path":"f","content":"` + strings.Repeat("x", filewire.MaxLine) + `"}}` + "\n",
	} {
		var out bytes.Buffer
		expect.Is(t, w.Serve(strings.NewReader(line), &out), nil, "%.60q", line)
		a, err := filewire.Speak(discard{}, &out, filewire.Exchange{Body: strings.NewReader("")})
		expect.True(t, errors.Is(err, chat.ErrInvalid) && a.Message == "",
			"%.60q: %+v, %v", line, a, err)
	}
	w.has(t)
	var out bytes.Buffer
	line := `{"tool":"write_file","parameters":{"path":"f","content":"\ud83d\ude00\\ud800"}}` + "\n"
	if err := w.Serve(strings.NewReader(line), &out); err != nil || cat(t, w.home+"/f") != `😀\ud800` {
		t.Errorf("a pair, and what only looks like half of one: %v, %s", err, out.String())
	}
}

// TestHostileAnswers: the other end is a process of the chat. Whatever it sends, Speak returns an
// error, and accepts no more content than requested.
func TestHostileAnswers(t *testing.T) {
	req, err := filewire.NewRequest(filewire.ReadFileTool, filewire.ReadFile{Path: "f"})
	must.Do(t, err)
	begin := `{"size":1,"bytes":0,"content":true}` + "\n"
	for name, answer := range map[string]string{
		"nothing": "", "no JSON": "hello\n", "no end": "{", "endless line": strings.Repeat(" ", filewire.MaxLine+1), "unknown field": `{"uid":0}` + "\n",
		"no content": begin, "half a length": begin + "\x00\x00", "half a chunk": begin + "\x00\x00\x00\x05abc", "huge chunk": begin + "\x7f\xff\xff\xff",
		"too much": begin + "\x00\x00\x00\x0b01234567890\x00\x00\x00\x00" + `{"bytes":11,"size":0}` + "\n",
		"no last":  begin + "\x00\x00\x00\x01a\x00\x00\x00\x00", "miscounted": begin + "\x00\x00\x00\x01a\x00\x00\x00\x00" + `{"bytes":2,"size":0}` + "\n",
		"denial of another kind": `{"size":0,"bytes":0,"failure":{"kind":"internal","message":"x","denial":{"op":"read","path":"/","rule":"r"}}}` + "\n",
	} {
		atOnce(t, func() {
			_, w := pipe(t)
			var got bytes.Buffer
			a, err := speak(w, strings.NewReader(answer), req, filewire.Exchange{Begin: func(filewire.Answer) io.Writer { return &got }, Limit: 10})
			expect.True(t, err != nil && got.Len() <= 10, "%s: %+v, %d bytes", name, a, got.Len())
		})
	}
	long := fmt.Sprintf(`{"size":0,"bytes":0,"failure":{"kind":"denied","message":"%s","denial":{"op":"read","path":"%[1]s","rule":"%[1]s"}}}`+"\n", strings.Repeat("x", 100_000))
	_, w := pipe(t)
	_, err = speak(w, strings.NewReader(long), req, filewire.Exchange{Limit: 10})
	var d *filewire.Denial
	if !errors.As(err, &d) || len(d.Rule) > filewire.MaxPath+3 || len(d.Path) > filewire.MaxPath+3 || len(err.Error()) > filewire.MaxMessage+3 {
		t.Errorf("a long denial: %d bytes", len(err.Error()))
	}
}

// TestHugeFile: a file of 1 GiB is read, written, appended to and edited in a
// process that never has more than 64 MiB.
func TestHugeFile(t *testing.T) {
	size := int64(1 << 30)
	if testing.Short() {
		size = 128 << 20
	}
	for _, tool := range []filewire.Tool{filewire.ReadFileTool, filewire.WriteFileTool, filewire.AppendFileTool, filewire.EditFileTool, "read lines"} {
		t.Run(string(tool), func(t *testing.T) {
			dir := t.TempDir()
			if tool != filewire.WriteFileTool {
				huge(t, dir+"/huge", size)
			}
			cmd := child(t, "memory", "CHATD_FILES_DIR="+dir, "CHATD_FILES_TOOL="+string(tool), fmt.Sprint("CHATD_FILES_SIZE=", size))
			begun := time.Now()
			out := must.Get(cmd.Output())(t)
			kb := must.Get(strconv.Atoi(strings.TrimSpace(string(out))))(t)
			t.Logf("%d MiB at most, %s", kb>>10, time.Since(begun).Round(time.Millisecond))
			expect.True(t, kb <= 64<<10, "%d KiB were needed for %d MiB", kb, size>>20)
		})
	}
}

// huge makes a sparse file that ends with "\nmark\n".
func huge(t *testing.T, name string, size int64) {
	t.Helper()
	f := must.Get(os.Create(name))(t)
	defer f.Close()
	must.Get(f.WriteAt([]byte("\nmark\n"), size-6))(t)
}

// memoryChild has both ends of the wire in it, and prints its VmHWM.
func memoryChild() {
	size, err := strconv.ParseInt(os.Getenv("CHATD_FILES_SIZE"), 10, 64)
	check(err)
	var n counter
	tool := filewire.Tool(os.Getenv("CHATD_FILES_TOOL"))
	x := filewire.Exchange{Body: io.LimitReader(zeros{}, size), Begin: func(filewire.Answer) io.Writer { return &n }, Limit: 1 << 40}
	var args filewire.Args = filewire.WriteFile{Path: "huge", Stream: true}
	switch tool {
	case filewire.ReadFileTool:
		args = filewire.ReadFile{Path: "huge", Stream: true, Hash: true}
	case "read lines":
		args = filewire.ReadFile{Path: "huge", Line: 2}
		tool, size = filewire.ReadFileTool, 5
	case filewire.EditFileTool:
		args = filewire.EditFile{Path: "huge", OldText: "mark", NewText: "gone"}
		size = 0
	case filewire.AppendFileTool:
		x.Body, size = io.LimitReader(zeros{}, size/4), 0
	default:
		size = 0
	}
	_, err = childWorld().exchange(&testing.B{}, tool, args, x)
	check(err)
	if int64(n) != size {
		panic(fmt.Sprintf("%d bytes came, want %d", n, size))
	}
	fmt.Println(peak())
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// peak is the most memory this process had, in KiB, proc_pid_status(5).
func peak() string {
	b, err := os.ReadFile("/proc/self/status")
	check(err)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB"))
		}
	}
	panic("no VmHWM")
}

// TestRequestForm: the example of PicoClaw's page is a request.
func TestRequestForm(t *testing.T) {
	req, err := filewire.NewRequest(filewire.ReadFileTool, filewire.ReadFile{Path: "config/settings.json"})
	must.Do(t, err)
	line, err := json.Marshal(req)
	want := `{"tool":"read_file","parameters":{"path":"config/settings.json"}}`
	expect.True(t, err == nil && string(line) == want, "%s, %v", line, err)
	expect.Is(t, expect.Err(filewire.NewRequest(filewire.ReadFileTool, filewire.ReadFile{})), chat.ErrInvalid,
		"a request that cannot be meant")
	if !slices.Equal([]filewire.Tool{filewire.ReadFileTool, filewire.WriteFileTool, filewire.EditFileTool, filewire.AppendFileTool, filewire.ListDirTool}, []filewire.Tool{"read_file", "write_file", "edit_file", "append_file", "list_dir"}) {
		t.Error("the tools have other names")
	}
}
