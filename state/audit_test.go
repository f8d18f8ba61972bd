package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func lines(text string) []string {
	return strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
}

func TestAuditLine(t *testing.T) {
	s := fresh(t)
	r := admit(t, s, "a")
	e := Event{Action: "run", Outcome: "intent", Chat: r.ID, UID: r.UID, Caller: bridge, Detail: map[string]string{"cwd": "/tmp"}}
	must.Do(t, s.Audit(e))
	all := lines(verified(t, s))
	var got map[string]any
	must.Do(t, json.Unmarshal([]byte(all[2]), &got))
	when, prev := got["time"], got["prev"]
	delete(got, "time")
	delete(got, "prev")
	want := map[string]any{"seq": 3.0, "action": "run", "outcome": "intent", "chat": string(r.ID), "uid": float64(r.UID),
		"caller": map[string]any{"name": "bridge", "uid": 1000.0, "role": "bridge"}, "detail": map[string]any{"cwd": "/tmp"}}
	expect.True(t, fmt.Sprint(got) == fmt.Sprint(want), "line %v, want %v", got, want)
	if prev != hashLine([]byte(strings.TrimSuffix(all[1], "\n"))) || !strings.HasSuffix(fmt.Sprint(when), "Z") {
		t.Errorf("prev %v, time %v", prev, when)
	}
	for _, bad := range []Event{{}, {Action: "run"}, {Outcome: "done"}} {
		wantErr(t, "an event that says nothing", s.Audit(bad), chat.ErrInvalid)
	}
}

// No byte of a caller's text moves a terminal's cursor, breaks a line or reverses its direction
// where the log is read, and none makes a line too long to verify.
func TestHostileTextInTheLog(t *testing.T) {
	s := fresh(t)
	evil := "\x1b[2J\n\r\u2028\u2029\u202e\u009b\x7f\x00\xff\"}\\é😀"
	long := strings.Repeat("\u2028", 5000)
	e := event("run", "intent")
	e.Detail = map[string]string{evil: evil, "long": long, "é": "kept"}
	e.Caller.Name, e.Caller.Role, e.Chat = evil+long, chat.Role(long), chat.ID(long)
	for i := range 100 {
		e.Detail[strconv.Itoa(i)+long] = long
	}
	must.Do(t, s.Audit(e))
	must.Do(t, s.Audit(Event{Action: long, Outcome: long}))
	text := verified(t, s)
	for _, b := range []byte(text) {
		if b != '\n' && (b < ' ' || b > '~') {
			t.Fatalf("byte %#x in the log", b)
		}
	}
	e.Detail = map[string]string{"evil": evil}
	must.Do(t, s.Audit(e))
	all := lines(verified(t, s))
	var back line
	must.Do(t, json.Unmarshal([]byte(all[len(all)-1]), &back))
	if want := strings.ReplaceAll(evil, "\xff", "\ufffd"); back.Detail["evil"] != want {
		t.Errorf("reads back as %q, want %q", back.Detail["evil"], want)
	}
	for i, l := range all {
		expect.True(t, len(l) <= maxLine, "line %d has %d bytes", i+1, len(l))
	}
}

func TestConcurrentEventsMakeOneChain(t *testing.T) {
	s := fresh(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 20 {
				expect.NoError(t, s.Audit(event("run", "intent")))
				if j%7 == 0 {
					admit(t, s, fmt.Sprint(i, j))
				}
				expect.NoError(t, expect.Err(s.VerifyAudit()))
			}
		})
	}
	wg.Wait()
	n := len(lines(verified(t, s)))
	expect.True(t, n == 1+20*20+20*3, "%d lines", n)
	expect.NoError(t, s.Flush())
	verified(t, again(t, s))
}

// sample is a log of n lines on its own, and its path.
func sample(t testing.TB, n int) (string, []byte) {
	t.Helper()
	s := fresh(t)
	for i := range n - 1 {
		must.Do(t, s.Audit(Event{Action: "run", Outcome: "intent", Detail: map[string]string{"n": fmt.Sprint(i)}}))
	}
	must.Do(t, s.Close())
	path := filepath.Join(s.opts.Dir, auditName)
	b := must.Get(os.ReadFile(path))(t)
	return path, b
}

func TestVerifyFindsTheBrokenLine(t *testing.T) {
	path, whole := sample(t, 8)
	part := func(order ...int) []byte {
		var b []byte
		for _, i := range order {
			b = append(b, lines(string(whole))[i-1]...)
			b = append(bytes.TrimSuffix(b, []byte("\n")), '\n')
		}
		return b
	}
	chained := func(seq uint64) []byte { // to line 1, with the right prev
		b := must.Get(line{Seq: seq, Prev: hashLine(bytes.TrimSuffix(part(1), []byte("\n")))}.encode())(t)
		return append(append(part(1), b...), '\n')
	}
	for _, c := range []struct {
		what string
		log  []byte
		good int
		ok   bool
	}{
		{"as written", whole, 8, true},
		{"empty", nil, 0, true},
		{"cut at the end", part(1, 2, 3), 3, true},
		{"dropped", part(1, 2, 4, 5), 2, false},
		{"dropped at the beginning", part(2, 3), 0, false},
		{"moved", part(1, 3, 2, 4), 1, false},
		{"doubled", part(1, 2, 2, 3), 2, false},
		{"changed", bytes.Replace(whole, []byte(`"n":"3"`), []byte(`"n":"9"`), 1), 5, false},
		{"chained", chained(2), 2, true},
		{"wrong number, rightly chained", chained(3), 1, false},
		{"torn", whole[:len(whole)-5], 7, false},
		{"without its last newline", whole[:len(whole)-1], 7, false},
		{"empty line", append(part(1, 2), '\n'), 2, false},
		{"NULs", append(part(1), make([]byte, 300<<10)...), 1, false},
		{"a line without end", append(part(1), bytes.Repeat([]byte("x"), 1<<20)...), 1, false},
		{"a huge line", append(append(part(1), bytes.Repeat([]byte(" "), 1<<20)...), '\n'), 1, false},
	} {
		must.Do(t, os.WriteFile(path, c.log, 0o600))
		n, err := VerifyAudit(path)
		expect.True(t, n == c.good && (err == nil) == c.ok,
			"%s: %d lines, %v; want %d, ok %v", c.what, n, err, c.good, c.ok)
		if !c.ok {
			wantErr(t, c.what, err, chat.ErrInvalid)
			if want := fmt.Sprintf("line %d:", c.good+1); err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.what, err, want)
			}
		}
	}
	_, err := VerifyAudit(path + ".none")
	wantErr(t, "no log", err, os.ErrNotExist)
}

// The chain covers every byte of the log: verification fails if one is changed, dropped or doubled.
func TestVerifySeesEveryByte(t *testing.T) {
	s := fresh(t)
	for range 3 {
		must.Do(t, s.Audit(event("run", "intent")))
	}
	path := filepath.Join(s.opts.Dir, auditName)
	whole := []byte(verified(t, s))
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		for what, b := range map[string][]byte{
			"changed": changed,
			"dropped": append(bytes.Clone(whole[:i]), whole[i+1:]...),
			"doubled": append(bytes.Clone(whole[:i+1]), whole[i:]...),
		} {
			rewrite(t, path, b)
			expect.True(t, expect.Err(s.VerifyAudit()) != nil, "byte %d %s: not seen", i, what)
		}
	}
	rewrite(t, path, whole)
	verified(t, s)
}

// rewrite changes the bytes of a file and keeps its inode.
func rewrite(t testing.TB, path string, b []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path, b, 0o600))
}

func FuzzVerify(f *testing.F) {
	_, whole := sample(f, 4)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(`{"seq":1,"prev":"` + noHash + "\"}\n"))
	f.Add([]byte("{}\n\n\x00"))
	f.Fuzz(func(t *testing.T, log []byte) {
		n, c, err := verify(bytes.NewReader(log))
		expect.True(t, uint64(n) <= c.seq && n <= bytes.Count(log, []byte("\n")),
			"%d lines, seq %d", n, c.seq)
		if err == nil && (c.seq != uint64(n) || len(log) > 0 && log[len(log)-1] != '\n') {
			t.Errorf("accepted %d lines up to seq %d: %q", n, c.seq, log)
		}
		// a valid log stays valid when one more line is chained to it
		if err == nil {
			b := must.Get(line{Seq: c.seq + 1, Prev: c.hash}.encode())(t)
			if m, _, err := verify(bytes.NewReader(append(log, append(b, '\n')...))); err != nil || m != n+1 {
				t.Errorf("%d lines and one more make %d, %v", n, m, err)
			}
		}
	})
}
