package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/must"
)

// world is a policy with one chat, and an enforcer that answers as the test says.
type world struct {
	*InForce
	t    *testing.T
	chat Chat
	init *sys.ProcessHandle
	log  bytes.Buffer // of the start only: nothing else writes it simultaneously

	mu     sync.Mutex
	orders []orders.Order
	lines  []string
	denied []chat.Denied // of the audit log
	answer func(orders.Order) orders.Answer
}

// newWorld has rules for its chat's profile. No enforcer answers before listen.
func newWorld(t *testing.T, rules string) *world {
	t.Helper()
	home := filepath.Join(t.TempDir(), "00112233445566aa")
	must.Do(t, os.Mkdir(home, 0o700))
	guarded := chat.Profile{
		Name: chat.DefaultProfile, Guard: chat.DefaultGuard(), Limits: chat.DefaultLimits(),
	}
	w := &world{
		t: t, init: &sys.ProcessHandle{Process: sys.Process{PID: 7, Start: 8}},
		chat: Chat{
			ID: "00112233445566aa", UID: 70001, Profile: guarded.Name, Agent: chat.DefaultAgent,
			Home: home,
		},
		answer: func(orders.Order) orders.Answer { return orders.Answer{} },
	}
	w.InForce = New(Options{
		Profiles: map[string]chat.Profile{guarded.Name: guarded}, Rules: rulesOf(t, rules),
		Home: home, Trees: func(string) []chat.Exposed { return nil },
		Dir: t.TempDir(), Program: "/none", Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Chat: func(id chat.ID) (Chat, error) {
			if id != w.chat.ID {
				return Chat{}, chat.ErrNotFound
			}
			return w.chat, nil
		},
		Denied: func(_ chat.ID, d chat.Denied) { w.denied = append(w.denied, d) },
		Audit: func(_ context.Context, id chat.ID, action string, detail map[string]string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lines = append(w.lines, fmt.Sprintln(id, action, detail))
		},
	})
	must.Do(t, w.CheckFirst())
	return w
}

// rulesOf are the file rules of the default profile.
func rulesOf(t *testing.T, text string) map[string]*filerules.Policy {
	t.Helper()
	p, err := rulefile.Load("rules", []byte(text))
	must.Do(t, err)
	return map[string]*filerules.Policy{chat.DefaultProfile: p}
}

// listen makes the enforcer answer.
func (w *world) listen() {
	w.t.Helper()
	l, err := net.Listen("unix", filepath.Join(w.opt.Dir, orders.Socket))
	must.Do(w.t, err)
	w.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(conn)
		}
	}()
}

func (w *world) serve(conn net.Conn) {
	defer conn.Close()
	var o orders.Order
	if json.NewDecoder(conn).Decode(&o) != nil {
		return
	}
	w.mu.Lock()
	w.orders = append(w.orders, o)
	a := w.answer(o)
	w.mu.Unlock()
	_ = json.NewEncoder(conn).Encode(a)
}

// asked returns the verbs of the orders so far, and forgets them.
func (w *world) asked() (verbs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.orders {
		verbs = append(verbs, o.Verb)
	}
	w.orders = nil
	return verbs
}

// audited reports whether a line of the audit log has all texts.
func (w *world) audited(texts ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.lines, func(line string) bool {
		lacks := func(s string) bool { return !strings.Contains(line, s) }
		return !slices.ContainsFunc(texts, lacks)
	})
}

func has(text []byte, s string) bool { return bytes.Contains(text, []byte(s)) }

// until waits for what other goroutines do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		must.True(t, !time.Now().After(end), "it is not so that %s", what)
	}
}
