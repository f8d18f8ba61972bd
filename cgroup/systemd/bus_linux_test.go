package systemd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	godbus "github.com/godbus/dbus/v5"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// fakeBus is a bus with systemd behind it, as much as a [Bus] asks for.
type fakeBus struct {
	t    *testing.T
	path string
	l    net.Listener

	mu    sync.Mutex
	conns map[*fakeConn]bool
	calls []string // the members of systemd's calls
	// mute: it takes connections and says nothing. silent: it answers no call. jobless: no job
	// ends.
	mute, silent, jobless bool
	drop                  map[string]int // how many calls of a member end their connection
	dropJob               int            // how many jobs do so in place of their end
}

// fakeConn is one client's connection.
type fakeConn struct {
	net.Conn
	mu sync.Mutex // held while a message is written
}

// newFakeBus begins a bus, and makes it this process's.
func newFakeBus(t *testing.T) *fakeBus {
	t.Helper()
	b := &fakeBus{t: t, path: filepath.Join(t.TempDir(), "bus"), conns: map[*fakeConn]bool{},
		drop: map[string]int{}}
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path="+b.path)
	b.begin()
	t.Cleanup(b.end)
	return b
}

// begin lets it listen; end closes everything, as a bus that is stopped.
func (b *fakeBus) begin() {
	l := must.Get(net.Listen("unix", b.path))(b.t)
	b.l = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conn := &fakeConn{Conn: c}
			b.mu.Lock()
			b.conns[conn] = true
			b.mu.Unlock()
			go b.serve(conn)
		}
	}()
}

func (b *fakeBus) end() {
	_ = b.l.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.Close()
	}
	clear(b.conns)
}

// set changes what it does.
func (b *fakeBus) set(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

func (b *fakeBus) is(state *bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *state
}

// asked is how often systemd got a call.
func (b *fakeBus) asked(member string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.calls {
		if c == member {
			n++
		}
	}
	return n
}

func (b *fakeBus) serve(c *fakeConn) {
	in := bufio.NewReader(c)
	if b.is(&b.mute) {
		_, _ = io.Copy(io.Discard, in) // for as long as the client waits
		return
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "ERROR"
		switch line = strings.Trim(line, "\x00\r\n"); {
		case line == "AUTH":
			answer = "REJECTED EXTERNAL"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		case line == "BEGIN":
			b.answer(c, in)
			return
		}
		if _, err := fmt.Fprint(c, answer+"\r\n"); err != nil {
			return
		}
	}
}

// answer answers calls until the connection ends.
func (b *fakeBus) answer(c *fakeConn, in *bufio.Reader) {
	for n := 1; ; n++ {
		m, err := godbus.DecodeMessage(in)
		if err != nil {
			return
		}
		member, _ := m.Headers[godbus.FieldMember].Value().(string)
		b.mu.Lock()
		b.calls = append(b.calls, member)
		silent, jobless, drop := b.silent, b.jobless, b.drop[member] > 0
		if drop {
			b.drop[member]--
		}
		b.mu.Unlock()
		if drop {
			_ = c.Close()
			return
		}
		if silent {
			continue
		}
		var body []any
		job := godbus.ObjectPath(fmt.Sprintf("/org/freedesktop/systemd1/job/%d", n))
		switch member {
		case "Hello":
			body = []any{":1.7"}
		case "Get":
			body = []any{godbus.MakeVariant([]byte{0xab})}
			if m.Body[1] == "Version" {
				body = []any{godbus.MakeVariant("252.39")}
			}
		case "StartUnit", "StopUnit", "StartTransientUnit":
			body = []any{job}
		}
		to := map[godbus.HeaderField]any{godbus.FieldReplySerial: m.Serial()}
		c.send(godbus.TypeMethodReply, to, body)
		if strings.HasSuffix(member, "Unit") && !jobless {
			b.endJob(job)
		}
	}
}

// endJob tells all clients that a job is done.
func (b *fakeBus) endJob(job godbus.ObjectPath) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		if b.dropJob > 0 {
			_ = c.Close()
			continue
		}
		c.send(godbus.TypeSignal, map[godbus.HeaderField]any{
			godbus.FieldPath:      godbus.ObjectPath("/org/freedesktop/systemd1"),
			godbus.FieldInterface: "org.freedesktop.systemd1.Manager",
			godbus.FieldMember:    "JobRemoved",
		}, []any{uint32(1), job, "a.service", "done"})
	}
	b.dropJob = max(0, b.dropJob-1)
}

// send writes one message; the client may have gone.
func (c *fakeConn) send(kind godbus.Type, headers map[godbus.HeaderField]any, body []any) {
	m := &godbus.Message{Type: kind, Headers: map[godbus.HeaderField]godbus.Variant{}, Body: body}
	for f, v := range headers {
		m.Headers[f] = godbus.MakeVariant(v)
	}
	if len(body) > 0 {
		m.Headers[godbus.FieldSignature] = godbus.MakeVariant(godbus.SignatureOf(body...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = m.EncodeTo(c, binary.LittleEndian)
}

// callsOf are the calls of a bus, by their names.
func callsOf(t *testing.T, b *Bus) map[string]func() error {
	ctx := t.Context()
	return map[string]func() error{
		"Version":        func() error { _, err := b.Version(ctx); return err },
		"Start":          func() error { return b.Start(ctx, "chatd.slice") },
		"StartTransient": func() error { return b.StartTransient(ctx, "a.service", nil) },
		"Stop":           func() error { return b.Stop(ctx, "a.service") },
		"SetProperties":  func() error { return b.SetProperties("a.service", nil) },
		"Invocation":     func() error { _, err := b.Invocation("a.service"); return err },
		"Freeze":         func() error { return b.Freeze(ctx, "a.service") },
	}
}

// hurry shortens the waits of a test, until end: a busy machine may take longer to answer.
func hurry() (end func()) {
	was, dial := busTime, dialTime
	busTime, dialTime = 100*time.Millisecond, 30*time.Millisecond
	return func() { busTime, dialTime = was, dial }
}

// allAnswer checks that systemd answers each call.
func allAnswer(t *testing.T, b *Bus) {
	t.Helper()
	for name, call := range callsOf(t, b) {
		expect.Is(t, call(), nil, "%s", name)
	}
}

// allBusy makes all calls simultaneously, many times, none of which may wait for the others.
func allBusy(t *testing.T, b *Bus) {
	t.Helper()
	var all sync.WaitGroup
	for name, call := range callsOf(t, b) {
		for range 10 {
			all.Go(func() { expect.Is(t, call(), chat.ErrBusy, "%s", name) })
		}
	}
	all.Wait()
}

// settle waits until nobody makes a connection.
func settle(b *Bus) {
	b.mu.Lock()
	d := b.dialing
	b.mu.Unlock()
	if d != nil {
		<-d.done
	}
}

// TestBusSilent: a bus takes connections and says nothing, or takes calls and does not answer, or
// systemd ends no job. Every call ends as busy in its time. When the bus answers again, so do they.
func TestBusSilent(t *testing.T) {
	bus := newFakeBus(t)
	for name, state := range map[string]*bool{"mute": &bus.mute, "silent": &bus.silent} {
		t.Run(name, func(t *testing.T) {
			for _, connected := range []bool{false, true} {
				b := &Bus{}
				defer b.Close()
				if connected {
					allAnswer(t, b)
				}
				func() {
					defer hurry()()
					bus.set(func() { *state = true })
					defer bus.set(func() { *state = false })
					if !connected || name == "silent" {
						allBusy(t, b)
					}
					settle(b)
				}()
				allAnswer(t, b)
			}
		})
	}
}

// TestBusJobless: a job that does not end keeps its caller, in its time, and nobody else: the
// connection is as good as before.
func TestBusJobless(t *testing.T) {
	bus, b := newFakeBus(t), &Bus{}
	defer b.Close()
	allAnswer(t, b)
	bus.set(func() { bus.jobless = true })
	func() {
		was := busTime
		busTime = 100 * time.Millisecond
		defer func() { busTime = was }()
		for _, name := range []string{"Start", "StartTransient", "Stop"} {
			expect.Is(t, callsOf(t, b)[name](), chat.ErrBusy, "%s", name)
		}
	}()
	if _, err := b.Version(t.Context()); err != nil || bus.asked("Hello") != 2 {
		t.Errorf("afterwards %v, after %d connections", err, bus.asked("Hello"))
	}
}

// TestBusLost: the bus ends while nobody calls, in the middle of a call, or before a job's end.
// What may be repeated is done by the next connection; a start is busy, for the unit may be
// there.
func TestBusLost(t *testing.T) {
	bus, b := newFakeBus(t), &Bus{}
	defer b.Close()
	allAnswer(t, b)
	bus.end()
	expect.Is(t, callsOf(t, b)["Stop"](), chat.ErrBusy, "without a bus")
	_ = os.Remove(bus.path)
	bus.begin()
	allAnswer(t, b)
	for name, member := range map[string]string{"Version": "Get", "Stop": "StopUnit",
		"Freeze": "FreezeUnit", "Start": "StartUnit", "StartTransient": "StartTransientUnit"} {
		lose := []func(){func() { bus.drop[member] = 2 }}
		if strings.HasPrefix(name, "St") {
			lose = append(lose, func() { bus.dropJob = 2 })
		}
		for i, lose := range lose {
			before := bus.asked(member)
			bus.set(lose)
			err, want := callsOf(t, b)[name](), 3
			if name == "StartTransient" {
				want = 1
			}
			if asked := bus.asked(member) - before; asked != want || (err == nil) != (want == 3) ||
				err != nil && !errors.Is(err, chat.ErrBusy) {
				t.Errorf("%s, lost %d: asked %d times, %v", name, i, asked, err)
			}
			bus.set(func() { bus.dropJob = 0; clear(bus.drop) })
		}
	}
	allAnswer(t, b)
}
