package enforcer

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var someSession = Session{Chat: "00000000000000aa", PID: 7, Start: 8}

// TestAnswers tries what an enforcer may answer: what cannot be used is an error that says why, and
// only an enforcer that ended before it answered is worth asking again.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		ended        bool
		want         string
	}{
		{"an answer", `{"masks":3,"later":"fanotify"}` + "\n", false, ""},
		{"a key of a newer enforcer", `{"masks":3,"more":[1]}` + "\n", false, ""},
		{"an enforcer that cannot", `{"error":"cannot obey why"}`, false, "aa: cannot obey why"},
		{"nothing", "", true, "it ended before it answered"},
		{"half an answer", `{"masks":`, true, "it ended before it answered"},
		{"no JSON", "x", false, "invalid character"},
		{"too much", strings.Repeat(" ", orders.MaxAnswer) + "{}", true, "it ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			answers(t, dir, with(tt.answer))
			a, err := of(dir).probe(t.Context(), someSession)
			expect.True(t, says(err, tt.want) && (err != nil || a.Masks == 3),
				"%+v, %v, want %q", a, err, tt.want)
			expect.True(t, errors.Is(err, ErrEnded) == tt.ended,
				"%v: want an enforcer that ended: %t", err, tt.ended)
		})
	}
}

// TestOrders: each method sends what the enforcer needs, and the session by its init process.
func TestOrders(t *testing.T) {
	dir := t.TempDir()
	sent := make(chan orders.Order, 10)
	answers(t, dir, func(conn *net.UnixConn, o orders.Order) {
		sent <- o
		with(`{"by":"L2g="}`)(conn, o) // /h
	})
	c := of(dir)
	rules := Rules{UID: 5, Home: "/h", Agent: "a", Compiled: []byte("{}")}
	must.Do(t, c.ApplyRules(t.Context(), someSession, rules))
	by, err := c.Why(t.Context(), someSession, "/h/x")
	if must.Do(t, err, c.Drop(t.Context(), someSession.Chat)); by != "/h" {
		t.Errorf("the denied name is %q", by)
	}
	session := `"chat":"00000000000000aa","pid":7,"start":8`
	for _, want := range []string{
		`{"verb":"probe"}`, // before an order that needs an enforcer
		`{"verb":"hold","chat":"00000000000000aa","uid":5,"pid":7,"start":8,` +
			`"home":"/h","agent":"a","rules":{}}`,
		`{"verb":"why",` + session + `,"path":"L2gveA=="}`,
		`{"verb":"drop","chat":"00000000000000aa"}`,
	} {
		got, err := json.Marshal(<-sent)
		expect.True(t, err == nil && string(got) == want, "the order is %s, %v, want %s", got, err, want)
	}
}

// TestAskedAgain: a worker that ends amid an order is one that the next may answer. What may have
// ended it is asked only once more.
func TestAskedAgain(t *testing.T) {
	for verb, max := range map[string]int{orders.Apply: 2, orders.Probe: 3} {
		for lost := range max + 1 {
			dir := t.TempDir()
			left := make(chan struct{}, lost) // of answers that are lost
			for range lost {
				left <- struct{}{}
			}
			f := answers(t, dir, func(conn *net.UnixConn, o orders.Order) {
				select {
				case <-left:
					if o.Verb == verb {
						return
					}
					left <- struct{}{} // ApplyRules probes before
				default:
				}
				with("{}\n")(conn, o)
			})
			c := of(dir)
			var err error
			if verb == orders.Apply {
				err = c.ApplyRules(t.Context(), someSession, Rules{})
			} else {
				_, err = c.probe(t.Context(), someSession)
			}
			expect.True(t, errors.Is(err, ErrEnded) == (lost >= max) && (err == nil || lost >= max),
				"%s with %d answers lost: %v", verb, lost, err)
			if n := f.asked(verb); n != min(lost+1, max) {
				t.Errorf("%s with %d answers lost: asked %d times of %d", verb, lost, n, max)
			}
		}
	}
}

// TestDropMeetsTheEnd: an enforcer that ends while it is told of a session's end does not keep the
// session from ending: a later worker reads what it recorded. Nor does one that is not there.
func TestDropMeetsTheEnd(t *testing.T) {
	dir := t.TempDir()
	for _, none := range []string{dir, filepath.Join(dir, "none")} {
		must.Do(t, of(none).Drop(t.Context(), someSession.Chat))
	}
	l := must.Get(net.Listen("unix", filepath.Join(dir, orders.Socket)))(t)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// What was sent is not read: the other end hears ECONNRESET, EPIPE or the end.
			_ = conn.Close()
		}
	}()
	for range 100 {
		must.Do(t, of(dir).Drop(t.Context(), someSession.Chat))
	}
	_, err := of(dir).Why(t.Context(), someSession, "/x")
	expect.True(t, errors.Is(err, ErrEnded), "another order: %v", err)
}

// TestNeverAnswered: a caller that goes away does not wait for an enforcer that hangs.
func TestNeverAnswered(t *testing.T) {
	dir := t.TempDir()
	hang := make(chan struct{})
	defer close(hang)
	f := answers(t, dir, func(*net.UnixConn, orders.Order) { <-hang })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- of(dir).Drop(ctx, someSession.Chat) }()
	until(t, "the enforcer is asked", func() bool { return f.asked(orders.Drop) == 1 })
	cancel()
	if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ErrEnded) {
		t.Errorf("an enforcer that hangs: %v", err)
	}
}

// TestLayer: the layer view says what the enforcer has mounted, and is weaker where none answers.
func TestLayer(t *testing.T) {
	on := chat.Layer{Name: chat.LayerView, State: chat.LayerOn, By: "bubblewrap", Probe: "tried"}
	dir := t.TempDir()
	none := of(dir)
	l := none.Layer(t.Context(), someSession, on, 2)
	if l.State != chat.LayerWeaker || l.Fix == "" || l.By != on.By ||
		none.Keeps(t.Context(), someSession) ||
		!strings.Contains(l.Probe, "masks 2 denied paths; file rules: nobody checks") {
		t.Errorf("without an enforcer: %+v", l)
	}
	answers(t, dir, with(`{"masks":3,"read_only":1,"later":"fanotify"}`+"\n"))
	l = of(dir).Layer(t.Context(), someSession, on, 0)
	if l.State != chat.LayerOn || l.By != "bubblewrap, chatd-enforce" || l.Fix != "" ||
		l.Probe != "tried; file rules: 3 closed, 1 read-only, 0 open inside, "+
			"files made later by fanotify" {
		t.Errorf("with an enforcer: %+v", l)
	}
	expect.True(t, of(dir).Keeps(t.Context(), someSession), "an enforcer that answers keeps nothing")
}

// TestLayerOfSilentEnforcer: those who look at many sessions wait once for an enforcer that is
// stopped: it takes connections and answers none.
func TestLayerOfSilentEnforcer(t *testing.T) {
	dir := t.TempDir()
	l := must.Get(net.Listen("unix", filepath.Join(dir, orders.Socket)))(t)
	defer l.Close()
	c := client(Options{Dir: dir})
	for i := range 2 {
		got := c.Layer(t.Context(), Session{PID: 1}, chat.Layer{State: chat.LayerOn}, 0)
		unasked := strings.Contains(got.Probe, "it does not answer")
		expect.True(t, got.State == chat.LayerWeaker && unasked == (i > 0),
			"look %d: the layer is %+v", i, got)
	}
}
