package redact

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func scrubbing(texts ...string) scrubber {
	return scrubber{texts: func() []string { return texts }}
}

// masked is what a scrubber has to make of a whole text: the specification, without streams.
func masked(s string, texts []string) string {
	out := []byte(s)
	for _, t := range texts {
		for i := 0; i+len(t) <= len(s); i++ {
			if s[i:i+len(t)] == t {
				copy(out[i:], strings.Repeat("*", len(t)))
			}
		}
	}
	return string(out)
}

var scrubCases = []struct {
	text  string
	texts []string
}{
	{"before secret after", []string{"secret"}},
	{"secretsecret secre", []string{"secret"}},
	{"ssecrets secsecret", []string{"secret"}},
	{"aaaaaaa baaa", []string{"aaaa"}},
	{"abcabcabd abcabd", []string{"abcabd"}},
	{"ababab aba", []string{"abab", "baba"}},                   // they overlap
	{"onetwothree onetwo two", []string{"onetwothree", "two"}}, // one in another
	{"key=c2VjcmV0; secret", []string{"secret", "c2VjcmV0"}},
	{"nothing", nil},
	{"", []string{"secret"}},
	{strings.Repeat("secre", 50) + "t", []string{"secret"}},
}

// TestScrubSplit: wherever a stream is divided, in two or three, the same comes out.
func TestScrubSplit(t *testing.T) {
	for _, c := range scrubCases {
		want := masked(c.text, c.texts)
		expect.Equal(t, Text(c.text, c.texts), want, "%q: whole", c.text)
		for i := 0; i <= len(c.text); i++ {
			for j := i; j <= len(c.text); j++ {
				s := scrubbing(c.texts...)
				var got []byte
				for _, part := range []string{c.text[:i], c.text[i:j], c.text[j:]} {
					got = append(got, s.feed([]byte(part), false)...)
				}
				if got = append(got, s.feed(nil, true)...); string(got) != want {
					t.Fatalf("%q at %d and %d: %q, want %q", c.text, i, j, got, want)
				}
			}
		}
	}
}

// TestScrubKeepsLittle: what no text can be in is passed on immediately.
func TestScrubKeepsLittle(t *testing.T) {
	s := scrubbing("secret")
	for _, x := range [][2]string{
		{"data: 1\n\n", "data: 1\n\n"}, {"a secre", "a "}, {"t ", "****** "},
		{"longer words", "longer "},
		{"\n", "words\n"}, {"wordswords", "words"}, {"\xff", "words\xff"},
	} {
		if got := string(s.feed([]byte(x[0]), false)); got != x[1] {
			t.Errorf("%q: %q, want %q", x[0], got, x[1])
		}
	}
}

// TestScrubTellsNothing: how much is kept back does not depend on whether it is the beginning of a
// value. By that a chat could read one, character by character.
func TestScrubTellsNothing(t *testing.T) {
	for _, sent := range []string{"s", "se", "secre", "x secre", "sec\nse", "secretse", "aasecr"} {
		var sizes []int
		for _, value := range []string{"secret", "tercse", "******", "secrex"} {
			s := scrubbing(value)
			sizes = append(sizes, len(s.feed([]byte(sent), false)))
		}
		for _, n := range sizes {
			if n != sizes[0] {
				t.Errorf("%q: %d bytes are passed on", sent, sizes)
				break
			}
		}
	}
}

func TestScrubbedReader(t *testing.T) {
	for _, c := range scrubCases {
		for name, r := range map[string]io.Reader{
			"whole":          strings.NewReader(c.text),
			"bytes":          iotest.OneByteReader(strings.NewReader(c.text)),
			"end with bytes": iotest.DataErrReader(strings.NewReader(c.text)),
		} {
			s, ended := scrubbing(c.texts...), 0
			b, err := io.ReadAll(iotest.HalfReader(&scrubbed{from: r, feed: &s,
				end: func() { ended++ }}))
			if want := masked(c.text, c.texts); err != nil || string(b) != want || ended != 1 {
				t.Errorf("%s: %q, %v, ended %d, want %q", name, b, err, ended, want)
			}
		}
	}
	s := scrubbing("secret")
	b, err := io.ReadAll(&scrubbed{from: iotest.TimeoutReader(iotest.OneByteReader(
		strings.NewReader("secret"))), feed: &s})
	expect.True(t, string(b) == "s" && err == iotest.ErrTimeout, "a broken stream: %q, %v", b, err)
}

func FuzzScrub(f *testing.F) {
	for _, c := range scrubCases {
		f.Add(c.text, strings.Join(c.texts, "\n"), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text, list string, seed uint64) {
		var texts []string
		for _, s := range strings.Split(list, "\n") {
			if s != "" && visibleEnd([]byte(s), len(s)) == len(s) {
				texts = append(texts, s)
			}
		}
		want := masked(text, texts)
		r, s, rest := rand.New(rand.NewPCG(seed, 0)), scrubbing(texts...), text
		var got []byte
		for rest != "" {
			n := 1 + r.IntN(len(rest))
			got = append(got, s.feed([]byte(rest[:n]), false)...)
			must.True(t, len(got)+len(s.out) == len(text)-len(rest)+n, "the length changes")
			rest = rest[n:]
		}
		if got = append(got, s.feed(nil, true)...); string(got) != want {
			t.Errorf("%q without %q: %q, want %q", text, texts, got, want)
		}
	})
}

// frame is one of a server.
func frame(op byte, payload string) []byte {
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
	return append(b, payload...)
}

const (
	fin, textFrame, more, ping = 0x80, 0x01, 0x00, 0x09
)

// TestFrames: values in messages, in control frames and divided among fragments are taken out, and
// the frames stay whole.
func TestFrames(t *testing.T) {
	long := strings.Repeat("x", 300) + "secret" + strings.Repeat("y", 70000)
	for _, c := range [][2][][]byte{
		{{frame(fin|textFrame, "a secret b")}, {frame(fin|textFrame, "a ****** b")}},
		{{frame(fin|textFrame, "sec"), frame(fin|textFrame, "ret")}, // two messages
			{frame(fin|textFrame, "sec"), frame(fin|textFrame, "ret")}},
		{{frame(textFrame, "a sec"), frame(more, "r"), frame(more, ""), frame(fin|more, "et b")},
			{frame(textFrame, "a ***"), frame(more, "*"), frame(more, ""),
				frame(fin|more, "** b")}},
		{{frame(textFrame, "sec"), frame(fin|ping, "secret"), frame(fin|more, "retse")},
			{frame(textFrame, "***"), frame(fin|ping, "******"), frame(fin|more, "***se")}},
		{{frame(textFrame, "sec"), frame(fin|ping, "ret"), frame(fin|more, "x")},
			{frame(textFrame, "sec"), frame(fin|ping, "ret"), frame(fin|more, "x")}},
		{{frame(fin|textFrame, long)},
			{frame(fin|textFrame, strings.Replace(long, "secret", "******", 1))}},
		{{frame(fin|ping, ""), frame(fin|textFrame, "")},
			{frame(fin|ping, ""), frame(fin|textFrame, "")}},
	} {
		in, want := bytes.Join(c[0], nil), bytes.Join(c[1], nil)
		for _, step := range []int{1, 2, 3, 7, len(in)} {
			f := frames{scrub: scrubbing("secret")}
			var got []byte
			for rest := in; len(rest) > 0; rest = rest[min(step, len(rest)):] {
				out := must.Get(f.next(rest[:min(step, len(rest))], false))(t)
				got = append(got, out...)
			}
			// Without an end: each message is passed on when it is whole.
			expect.True(t, bytes.Equal(got, want), "%.60q by %d: %.60q, want %.60q", in, step, got, want)
		}
	}
	for name, b := range map[string][]byte{
		"compressed":  frame(fin|0x40|textFrame, "x"),
		"masked":      {fin | textFrame, 0x81, 1, 2, 3, 4, 5},
		"a long ping": frame(fin|ping, strings.Repeat("x", 126)), "half a ping": frame(ping, "x"),
	} {
		f := frames{scrub: scrubbing("secret")}
		expect.True(t, expect.Err(f.next(b, false)) != nil, "%s is taken", name)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(frame(textFrame, "sec"), frame(fin|more, "ret")...), 3)
	f.Fuzz(func(t *testing.T, b []byte, step int) {
		if step = max(1, step); step > len(b) {
			step = max(1, len(b))
		}
		whole, parts := frames{scrub: scrubbing("secret")}, frames{scrub: scrubbing("secret")}
		want, wantErr := whole.next(b, true)
		var got []byte
		for rest := b; len(rest) > 0; rest = rest[min(step, len(rest)):] {
			out, err := parts.next(rest[:min(step, len(rest))], len(rest) <= step)
			got = append(got, out...)
			if err != nil {
				must.True(t, wantErr != nil, "%v", err)
				return
			}
		}
		if wantErr == nil && (!bytes.Equal(got, want) || len(got) != len(b)) {
			t.Errorf("%q by %d: %q, want %q", b, step, got, want)
		}
	})
}

// TestScrubHeaderNames: a header whose name has a value does not reach the chat.
func TestScrubHeaderNames(t *testing.T) {
	h := http.Header{"X-Sk-0123456789abcdef-Y": {"a"}, "X-Other": {"b SK-0123456789ABCDEF"}}
	Header(h, []string{"SK-0123456789ABCDEF"})
	expect.Equal(t, fmt.Sprint(h), "map[X-Other:[b *******************]]", "")
}

// TestFramesBound: control frames between fragments are not kept without end.
func TestFramesBound(t *testing.T) {
	for what, between := range map[string][]byte{
		"control frames":  frame(fin|ping, strings.Repeat("x", maxControl)),
		"empty fragments": frame(0, ""),
	} {
		f := frames{scrub: scrubbing("secretsecret")}
		_, err := f.next(frame(textFrame, "a"), false)
		for i := 0; err == nil; i++ {
			must.True(t, i <= 1000, "%s: %d bytes are kept", what, len(f.scrub.out))
			_, err = f.next(between, false)
		}
	}
}
