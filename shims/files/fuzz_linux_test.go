package files

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/must"
)

// fuzzWorld has files of every type, inside and outside.
func fuzzWorld(t *testing.T) world {
	w := newWorld(t)
	mkdir(t, w.home+"/d/e")
	put1(t, w.home+"/f", "one\ntwo\nthree\n")
	put1(t, w.home+"/d/g", "one two two")
	link(t, w.out, w.home+"/out")
	link(t, "../outside/secret", w.home+"/s")
	link(t, "d", w.home+"/in")
	link(t, w.home+"/f", w.home+"/abs")
	return w
}

// serveFuzz sends a request of raw parameters and wants an answer, that nothing
// of the outside is in it, and that the outside is as it was.
func serveFuzz(t *testing.T, tool filewire.Tool, parameters, body []byte) (string, filewire.Answer) {
	w := fuzzWorld(t)
	head := must.Get(json.Marshal(tool))(t)
	line := `{"tool":` + string(head) + `,"parameters":` + strings.ReplaceAll(string(parameters), "\n", " ") + "}\n"
	var out, got bytes.Buffer
	err := w.Serve(io.MultiReader(strings.NewReader(line), bytes.NewReader(body)), &out)
	must.True(t, err == nil, "Serve: %v", err)
	x := filewire.Exchange{
		Body: strings.NewReader(""), Begin: func(filewire.Answer) io.Writer { return &got }, Limit: 1 << 20,
	}
	a, err := filewire.Speak(discard{}, &out, x)
	_, failed := errors.AsType[*filewire.Failure](err)
	must.True(t, err == nil || failed, "the answer does not come through: %v", err)
	must.True(t, out.Len() <= 0, "%d bytes follow the answer", out.Len())
	must.True(t, !strings.Contains(got.String()+a.Diff+a.Message, "another chat"),
		"got out: %q", got.String())
	if cat(t, w.out+"/secret") != secret || len(ls(t, w.out)) != 1 || len(ls(t, path.Dir(w.home))) != 3 {
		t.Fatalf("wrote outside: %v", ls(t, w.out))
	}
	for _, name := range ls(t, w.home) {
		must.True(t, !tempName.MatchString(name), "left %s", name)
	}
	target, err := os.Readlink(w.home + "/abs")
	must.True(t, err == nil && target == w.home+"/f", "replaced a link: %v", err)
	must.True(t, a.Path == "" || chat.Within(a.Path, w.home) || chat.Within(a.Path, w.tmp),
		"opened %s", a.Path)
	return got.String(), a
}

// seedPaths is the seed corpus of paths.
var seedPaths = []string{"f", "abs", "in/g", "in/../f", "../outside/secret", "out/secret", "s", "out", ".", "/", "/etc/passwd", "d/e", "new/x",
	"/proc/self/root/etc/passwd", "/proc/self/cwd/f", "out/../home/f", "d/e/../../s", "", "f/", "//", "a\\u0000b", "\\ud800"}

func FuzzReadFile(f *testing.F) {
	for _, p := range seedPaths {
		f.Add([]byte(`{"path":"` + p + `","offset":2,"length":3}`))
		f.Add([]byte(`{"path":"` + p + `","line":2,"lines":1,"hash":true}`))
	}
	f.Add([]byte(`{"path":"f","offset":9223372036854775807,"length":1}`))
	f.Add([]byte(`{"path":"f","stream":true,"line":9223372036854775807}`))
	for _, s := range []string{"0e0", "\xfa", `""}`, `{"path":"..ooutside/secret","offset":2,"length":888888883}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, parameters []byte) {
		got, a := serveFuzz(t, filewire.ReadFileTool, parameters, nil)
		if a.Failure == nil && (int64(len(got)) != a.Bytes || a.Truncated != (a.NextOffset > 0) || !strings.Contains("one\ntwo\nthree\none two two", got)) {
			t.Fatalf("read %q, %+v", got, a)
		}
	})
}

func FuzzWriteFile(f *testing.F)  { fuzzWrite(f, filewire.WriteFileTool) }
func FuzzAppendFile(f *testing.F) { fuzzWrite(f, filewire.AppendFileTool) }

func fuzzWrite(f *testing.F, tool filewire.Tool) {
	for _, p := range seedPaths {
		f.Add([]byte(`{"path":"`+p+`","content":"x"}`), []byte{})
		f.Add([]byte(`{"path":"`+p+`","stream":true,"hash":true}`), []byte("\x00\x00\x00\x02ab\x00\x00\x00\x00"))
	}
	f.Add([]byte(`{"path":"f","stream":true}`), []byte("\x00\x00\x00\x02a"))
	f.Add([]byte(`{"path":"f","stream":true}`), []byte("\xff\xff\xff\xff"))
	f.Add([]byte(`{"pAth":"in/g","streAm":true}`), []byte("\x00\x00\x00\x02000000"))
	f.Add([]byte(`{"path":"Obs","content":"x"}`), []byte("{"))
	f.Add([]byte(`{"path":"d/e/../(((s","content":"x"}`), []byte{})
	f.Add([]byte(`{"path":"new/x","stream":true,"hash":true}`), []byte("\x00\x00\x00\x02======"))
	f.Add([]byte(`{";h":"out/secret"}`), []byte{})
	f.Add([]byte("\u0081Z\xad"), []byte{})
	f.Fuzz(func(t *testing.T, parameters, body []byte) {
		_, a := serveFuzz(t, tool, parameters, body)
		must.True(t, a.Failure != nil || a.Message != "", "%+v", a)
	})
}

func FuzzEditFile(f *testing.F) {
	for _, p := range seedPaths {
		f.Add([]byte(`{"path":"` + p + `","old_text":"two","new_text":"2"}`))
	}
	f.Add([]byte(`{"path":"d/g","old_text":"two","new_text":"2"}`))
	f.Add([]byte(`{"path":"f","old_text":"\n","new_text":""}`))
	f.Add([]byte(`{"path":"f","old_text":"exte\tw","new_text":"\ud83d\ude00\u0000"}`))
	f.Add([]byte("1"))
	f.Add([]byte("\xd4\xd4"))
	f.Add([]byte(`{"path":"f","old_text":"e\ntwo\nt","new_text":"\ud83d\ude00\u0000"}`))
	f.Fuzz(func(t *testing.T, parameters []byte) {
		_, a := serveFuzz(t, filewire.EditFileTool, parameters, nil)
		must.True(t, a.Failure != nil || strings.HasPrefix(a.Message, "File edited: "), "%+v", a)
	})
}

func FuzzListDir(f *testing.F) {
	for _, p := range seedPaths {
		f.Add([]byte(`{"path":"` + p + `","limit":2,"after":"d"}`))
	}
	f.Add([]byte(`{"after":"\"\\n\""}`))
	f.Add([]byte(`{"er":"\"\"af\n*"}`))
	f.Add([]byte("\x8d"))
	f.Fuzz(func(t *testing.T, parameters []byte) {
		got, a := serveFuzz(t, filewire.ListDirTool, parameters, nil)
		if a.Failure == nil && (strings.Count(got, "\n") != a.Entries || strings.Contains(got, "secret")) {
			t.Fatalf("list %q, %+v", got, a)
		}
	})
}

// discard takes everything.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// FuzzAnswer: an answer of the chat's process is read within bounds.
func FuzzAnswer(f *testing.F) {
	var chunk [4]byte
	binary.BigEndian.PutUint32(chunk[:], 3)
	f.Add([]byte(`{"size":3,"bytes":0,"content":true}` + "\n" + string(chunk[:]) + "abc\x00\x00\x00\x00" + `{"size":3,"bytes":3}` + "\n"))
	f.Add([]byte(`{"size":0,"bytes":0,"failure":{"kind":"denied","message":"no","denial":{"op":"read","path":"/x","rule":"**"}}}` + "\n"))
	f.Add([]byte(`{"ask":{"op":"write","path":"/x"}}` + "\n" + `{"send":true}` + "\n" + `{"size":4,"bytes":4}` + "\n"))
	for _, s := range []string{"", "\xea\n", "uReo\\u7o777777oo\\uooouo}\n", "[\x10\\\\\n", `{"BYtes":0,"Content":true}` + "\n\x00\x00\x00\x030000000"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got bytes.Buffer
		req := filewire.Request{Tool: filewire.WriteFileTool}
		a, err := speak(discard{}, bytes.NewReader(data), req, filewire.Exchange{
			Body: strings.NewReader("body"), Begin: func(filewire.Answer) io.Writer { return &got }, Limit: 100,
		})
		if got.Len() > 100 || err == nil && a.Failure != nil {
			t.Fatalf("%d bytes, %+v, %v", got.Len(), a, err)
		}
	})
}

// FuzzDecode: text that gets through is the text that was sent. encoding/json
// puts U+FFFD in the place of what it cannot read.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`"\ud83d\ude00"`, `"\ud800"`, `"\ud800\ud800\udc00"`, `"\\ud800"`, `"\ufffd"`, `"\uD83D\uDE00"`, `"\udc00\ud800"`, "\"\xff\"", `"\ud800\n"`, "", `""00`, `"\\CCudCCCCuRR"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s string
		if filewire.Decode(data, &s) != nil {
			return
		}
		said := bytes.Count(data, []byte("\ufffd")) + bytes.Count(bytes.ToLower(data), []byte(`\ufffd`))
		must.True(t, utf8.Valid(data) && strings.Count(s, "\ufffd") <= said,
			"%q was read as %q", data, s)
	})
}

// FuzzSearch compares search with a naive one.
func FuzzSearch(f *testing.F) {
	f.Add("aaa", "aa")
	f.Add("ababcabab", "abab")
	f.Add("0", "\x88\x88\x88\x880") // longer than the text
	f.Add("0000000001111111111", "01")
	f.Fuzz(func(t *testing.T, text, old string) {
		if old != "" {
			checkSearch(t, text, old)
		}
	})
}

// FuzzListName: a name stays one line, and comes back as it was.
func FuzzListName(f *testing.F) {
	for _, s := range []string{"a\nb", "\xff", `"a"`, "ü", `a"b`, "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p := printable(name)
		back, err := unprintable(p)
		must.True(t, err == nil && back == name && !strings.ContainsAny(p, "\n\r\x1b") && utf8.ValidString(p),
			"%q became %q and %q, %v", name, p, back, err)
	})
}
