package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// These tests act as a compromised front: it sends every message wrong in every way.

// rootEnd is chatd-root's end, over chats in memory, and the front's control socket.
type rootEnd struct {
	*Client
	mem    *apitest.Memory
	server *Server
	ended  chan error
}

func serve(t testing.TB) *rootEnd {
	t.Helper()
	mem := apitest.New()
	d := serveRoot(t, mem)
	d.mem = mem
	return d
}

func serveRoot(t testing.TB, chats verbs.Root) *rootEnd {
	t.Helper()
	root, front, err := Pair()
	must.Do(t, err)
	d := &rootEnd{ended: make(chan error, 1)}
	d.server, err = NewServer(root, ServerOptions{Root: chats, NameOf: func(uint32) (string, error) { return "ada", nil }, Log: slog.New(slog.DiscardHandler)})
	must.Do(t, err)
	go func() { d.ended <- d.server.Serve(context.Background()) }()
	if d.Client, err = NewClient(front); err != nil {
		t.Fatal(err)
	}
	return d
}

// end closes the front's end, and waits for root's.
func (d *rootEnd) end(t testing.TB) error {
	t.Helper()
	_ = d.control.close()
	select {
	case err := <-d.ended:
		return errors.Join(err, d.server.Close(), d.server.Wait(time.Minute))
	case <-time.After(time.Minute):
		t.Fatal("root does not notice that the front has ended")
		return nil
	}
}

// sound makes a call as a sound front does.
func (d *rootEnd) sound(t testing.TB) {
	t.Helper()
	_, err := d.List(operator(t), chat.Filter{})
	expect.True(t, err == nil, "a sound call: %v", err)
}

func operator(t testing.TB) context.Context {
	return chat.WithCaller(t.Context(), chat.Caller{Name: "root", Role: chat.RoleOperator})
}

// held counts the descriptors and goroutines of this process.
func held(t testing.TB) (fds, routines int) {
	t.Helper()
	list := must.Get(os.ReadDir("/proc/self/fd"))(t)
	return len(list), runtime.NumGoroutine()
}

// leaksNothing waits until there are no more descriptors and goroutines than before.
func leaksNothing(t testing.TB, fds, routines int) {
	t.Helper()
	var f, r int
	for range 500 {
		if f, r = held(t); f <= fds && r <= routines {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d descriptors and %d goroutines, were %d and %d", f, r, fds, routines)
}

// TestHostileControl: an invalid packet on the control socket ends it, leaks nothing, and its
// descriptors are not used.
func TestHostileControl(t *testing.T) {
	dir := t.TempDir()
	file := must.Get(os.Create(filepath.Join(dir, "f")))(t)
	defer file.Close()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "l"), Net: "unixpacket"})
	must.Do(t, err)
	defer l.Close()
	listener := must.Get(l.File())(t)
	defer listener.Close()
	socket := func(kind int) int {
		p := must.Get(unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0))(t)
		t.Cleanup(func() { _ = sys.CloseAll(p[:]) })
		return p[0]
	}
	pipe, w, err := os.Pipe()
	must.Do(t, err)
	defer pipe.Close()
	defer w.Close()
	stream, datagram, packet := socket(unix.SOCK_STREAM), socket(unix.SOCK_DGRAM), socket(unix.SOCK_SEQPACKET)
	for name, send := range map[string]struct {
		kind kind
		text string
		fds  []int
	}{
		"another kind": {request, "", []int{packet}}, "with text": {newCall, "x", []int{packet}}, "without a descriptor": {newCall, "", nil},
		"two descriptors": {newCall, "", []int{packet, packet}}, "a hundred": {newCall, "", slices.Repeat([]int{packet}, 100)},
		"a file": {newCall, "", []int{int(file.Fd())}}, "a pipe": {newCall, "", []int{int(pipe.Fd())}}, "a stream": {newCall, "", []int{stream}},
		"a datagram socket": {newCall, "", []int{datagram}}, "a listener": {newCall, "", []int{int(listener.Fd())}},
		"ready with text": {ready, "x", nil}, "ready with a descriptor": {ready, "", []int{packet}}, "settings": {settings, `{"version":"1"}`, nil}, "too long": {newCall, strings.Repeat("x", packetSize+1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			fds, routines := held(t)
			d := serve(t)
			d.sound(t)
			must.Do(t, d.control.sendFDs(send.kind, []byte(send.text), send.fds...))
			select {
			case err := <-d.ended:
				expect.True(t, err != nil, "root ends without an error")
				d.ended <- err
			case <-time.After(time.Minute):
				t.Fatal("root goes on")
			}
			_ = d.end(t)
			leaksNothing(t, fds, routines)
		})
	}
}

// raw makes a call of these packets, and returns the last packet's kind: answerEnd, failed, or 0
// for none.
func (d *rootEnd) raw(t testing.TB, send func(l *link)) (last kind, words string) {
	t.Helper()
	l := must.Get(d.open())(t)
	defer l.close()
	send(l)
	must.Do(t, l.hearBy(time.Now().Add(time.Minute)))
	last, p, err := recvAnswer(l)
	must.True(t, !errors.Is(err, os.ErrDeadlineExceeded), "root does not answer")
	return last, string(p)
}

// TestHostileRequests: an invalid request is refused, reaches no chat, and the next call is
// answered.
func TestHostileRequests(t *testing.T) {
	d := serve(t)
	fds, routines := held(t)
	d.mem.OnCreate = func(context.Context, chat.Spec) error { t.Error("a chat was created"); return nil }
	const who = `"caller":{"name":"root","uid":0,"role":"operator"}`
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "\x00\xff", "null": "null", "a list": "[]", "a text": `"create"`, "cut": `{"verb":"list"`,
		"no verb": `{` + who + `}`, "a verb that is none": `{"verb":"exec",` + who + `,"args":{}}`, "a verb in capitals": `{"verb":"CREATE",` + who + `,"args":{"external_id":"a"}}`,
		"an unknown member": `{"verb":"list",` + who + `,"args":{},"uid":0}`, "something behind it": `{"verb":"list",` + who + `,"args":{}} {}`,
		"a role that is none": `{"verb":"list","caller":{"role":"root"},"args":{}}`, "a long name": `{"verb":"list","caller":{"name":"` + strings.Repeat("a", 300) + `","role":"bridge"},"args":{}}`,
		"a negative uid": `{"verb":"list","caller":{"uid":-1},"args":{}}`, "a huge uid": `{"verb":"name_of",` + who + `,"args":4294967296}`,
		"a path for a chat": `{"verb":"show",` + who + `,"chat":"../../../etc","args":{}}`, "a NUL in a chat": `{"verb":"show",` + who + `,"chat":"\u0000","args":{}}`,
		"deep":                `{"verb":"list",` + who + `,"args":` + strings.Repeat("[", 20000) + `}`,
		"an unknown argument": `{"verb":"create",` + who + `,"args":{"external_id":"a","uid":0}}`, "no arguments": `{"verb":"create",` + who + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			last, words := d.raw(t, func(l *link) {
				must.Do(t, l.send(requestEnd, []byte(text)))
			})
			var f failure
			if err := json.Unmarshal([]byte(words), &f); last != failed || err != nil || !errors.Is(f.err(), chat.ErrInvalid) {
				t.Errorf("answered %q %s", last, words)
			}
			d.sound(t)
		})
	}
	leaksNothing(t, fds, routines)
	expect.NoError(t, d.end(t))
}

// TestHostileArguments: no verb crashes on arguments of the wrong form, or acts on them.
func TestHostileArguments(t *testing.T) {
	d := serve(t)
	fds, routines := held(t)
	made := must.First(d.Create(operator(t), chat.Spec{ExternalID: "a"}))(t)
	taking := map[string][]string{ // a text, and a number
		`"\ud800"`: {"schedule", "remove_schedule", "kept_schedule", "open_run", "await_run", "end_run"},
		`-1`:       {"log", "follow_log"},
	}
	for _, verb := range slices.Sorted(maps.Keys(handlers)) {
		for _, args := range []string{``, `[]`, `"\ud800"`, `-1`, `1e400`, `true`, `{"zzz":1}`, `{"path":{}}`, `{"labels":[]}`, `[[[[]]]]`, `{"run":7}`, `{"args":[]}`} {
			m := fmt.Sprintf(`{"verb":%q,"caller":{"name":"root","role":"operator"},"chat":%q`, verb, made.ID)
			if args != "" {
				m += `,"args":` + args
			}
			last, words := d.raw(t, func(l *link) {
				must.Do(t, l.send(requestEnd, []byte(m+"}")))
			})
			if last != failed || strings.Contains(words, "panic") {
				expect.True(t, slices.Contains(taking[args], verb),
					"%s %s: answered %q %s", verb, args, last, words)
			}
		}
	}
	_, err := d.Get(operator(t), made.ID)
	expect.True(t, err == nil, "the chat is gone: %v", err)
	leaksNothing(t, fds, routines)
	expect.NoError(t, d.end(t))
}

// TestHostileOrder: packets out of order, of unknown kinds, with descriptors, too many or too large
// end only their own call.
func TestHostileOrder(t *testing.T) {
	d := serve(t)
	fds, routines := held(t)
	list := []byte(`{"verb":"list","caller":{"name":"root","role":"operator"},"args":{}}`)
	big := bytes.Repeat([]byte("x"), packetSize-1)
	for name, send := range map[string]func(l *link){
		"content first":     func(l *link) { _ = l.send('d', big) },
		"an answer":         func(l *link) { _ = l.send(answerEnd, []byte(`{}`)) },
		"a kind of nobody":  func(l *link) { _ = l.send(0, nil) },
		"the end first":     func(l *link) { _ = l.send(end, nil) },
		"a report first":    func(l *link) { _ = l.send(toolSays, []byte(`{"n":0,"report":{}}`)) },
		"no last part":      func(l *link) { _ = l.send(request, list); _ = l.hangUp() },
		"hung up":           func(l *link) { _ = l.hangUp() },
		"content in a part": func(l *link) { _ = l.send(request, list); _ = l.send('d', nil) },
		"too large": func(l *link) {
			for sent := 0; sent <= maxRequest; sent += len(big) {
				if l.send(request, big) != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			last, words := d.raw(t, send)
			expect.True(t, last != answerEnd, "answered %s", words)
			d.sound(t)
		})
	}
	t.Run("a descriptor", func(t *testing.T) { // which is closed, and the call answered
		last, words := d.raw(t, func(l *link) { _ = l.sendFDs(requestEnd, list, 0, 0) })
		expect.True(t, last == answerEnd, "answered %q %s", last, words)
	})
	t.Run("a request more", func(t *testing.T) { // the first is answered or cut off
		d.raw(t, func(l *link) {
			for range 100 {
				if l.send(requestEnd, list) != nil {
					return
				}
			}
		})
		d.sound(t)
	})
	leaksNothing(t, fds, routines)
	expect.NoError(t, d.end(t))
}

// TestHostileDeath: a front that dies in the middle of each message leaves nothing behind.
func TestHostileDeath(t *testing.T) {
	fds, routines := held(t)
	var half []*link
	for verb := range handlers {
		d := serve(t)
		made := must.First(d.Create(operator(t), chat.Spec{ExternalID: "a"}))(t)
		m := fmt.Appendf(nil, `{"verb":%q,"caller":{"name":"root","role":"operator"},"chat":%q,"args":{}}`, verb, made.ID)
		for _, cut := range []int{0, 1, len(m) / 2, len(m)} {
			l := must.Get(d.open())(t)
			if k := request; cut > 0 {
				if cut == len(m) {
					k = requestEnd
				}
				must.Do(t, l.send(k, m[:cut]))
			}
			half = append(half, l)
		}
		err := d.end(t)
		expect.True(t, err == nil, "%s: %v", verb, err)
	}
	for _, l := range half {
		_ = l.close()
	}
	leaksNothing(t, fds, routines)
}

// TestHostileMany: calls over the limit are cut off, and ended calls free their places.
func TestHostileMany(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 2*maxCalls+200 {
		t.Skipf("wants %d descriptors, may have %d: %v", 2*maxCalls+200, limit.Cur, err)
	}
	d := serve(t)
	fds, routines := held(t)
	var all []*link
	for range maxCalls {
		l := must.Get(d.open())(t)
		all = append(all, l)
	}
	expect.Is(t, expect.Err(d.List(operator(t), chat.Filter{})), chat.ErrBusy, "a call too many")
	for _, l := range all {
		must.Do(t, l.close())
	}
	leaksNothing(t, fds, routines)
	d.sound(t)
	expect.NoError(t, d.end(t))
}

// FuzzRequest: whatever a front says, chatd-root answers, and answers the next.
func FuzzRequest(f *testing.F) {
	for verb := range handlers {
		f.Add([]byte(fmt.Sprintf(`{"verb":%q,"caller":{"name":"root","role":"operator"},"chat":"0123456789abcdef","args":{}}`, verb)))
	}
	f.Add([]byte(`{"verb":"create","caller":{"role":"bridge","name":"a"},"args":{"external_id":"x","labels":{"a":"b"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) >= packetSize || bytes.Contains(text, []byte("follow")) || bytes.Contains(text, []byte("_")) && bytes.Contains(text, []byte("u005f")) {
			return
		}
		d := serve(t)
		d.raw(t, func(l *link) {
			must.Do(t, l.send(requestEnd, text))
			_ = l.hangUp() // what follows a log ends
		})
		d.sound(t)
		expect.NoError(t, d.end(t))
	})
}

// FuzzAnswer: whatever chatd-root says, the front's call ends.
func FuzzAnswer(f *testing.F) {
	f.Add(byte(answerEnd), []byte(`{"chats":[]}`), byte(failed), []byte(`{"words":"no","kinds":["denied"]}`))
	f.Add(byte(frame), []byte(`{}`), byte(answer), []byte(`{`))
	f.Fuzz(func(t *testing.T, k1 byte, p1 []byte, k2 byte, p2 []byte) {
		if len(p1) >= packetSize || len(p2) >= packetSize {
			return
		}
		ours, theirs, err := pair()
		must.Do(t, err)
		l, err := newLink(ours)
		r, err2 := newLink(theirs)
		must.Do(t, errors.Join(err, err2))
		defer l.close()
		must.Do(t, errors.Join(r.send(kind(k1), p1), r.send(kind(k2), p2), r.close()))
		_ = hear(l.recv, &chat.Page{}, values(func(chat.Log) error { return nil }))
	})
}

// recvAnswer joins the parts of an answer, or returns the first other packet.
func recvAnswer(l *link) (last kind, all []byte, err error) {
	for err == nil && (last == 0 || last == answer) {
		err = l.recv(func(k kind, p []byte) error {
			last, all = k, append(all, p...)
			return nil
		})
	}
	return last, all, err
}
