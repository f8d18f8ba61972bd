package policy

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const noRules = "access: {useDefaults: false}\n"

// TestApply: a session gets the rules that the kernel enforces; one that still has rules and should
// have none gets the new ones too, and one without either is left alone.
func TestApply(t *testing.T) {
	for _, tt := range []struct {
		name, rules string
		kept        bool // the enforcer enforces rules in the session
		want        []string
	}{
		{"rules", denySecret, false, []string{orders.Probe, orders.Apply}},
		{"no rules", noRules, false, []string{orders.Probe}},
		{"no rules any more", noRules, true, []string{orders.Probe, orders.Probe, orders.Apply}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.rules)
			var held orders.Order
			w.answer = func(o orders.Order) orders.Answer {
				if o.Verb == orders.Apply {
					held = o
				}
				if o.Verb == orders.Probe && o.Chat != "" && !tt.kept {
					return orders.Answer{Error: "no rules of it are kept"}
				}
				return orders.Answer{}
			}
			w.listen()
			must.Do(t, w.Apply(t.Context(), w.chat, w.init))
			if got := w.asked(); !slices.Equal(got, tt.want) {
				t.Errorf("the enforcer was asked %q, want %q", got, tt.want)
			}
			kept := w.Kept(t.Context(), w.chat, w.init)
			expect.True(t, kept == (tt.kept || tt.rules == noRules), "the rules are kept: %t", kept)
			expect.True(t, (w.Barrier(w.chat) == nil) == (tt.rules == noRules),
				"only rules for the kernel are applied at the barrier of a start")
			if !slices.Contains(tt.want, orders.Apply) {
				return
			}
			if held.Chat != w.chat.ID || held.PID != 7 || held.UID != w.chat.UID ||
				held.Home != w.chat.Home || string(held.Rules) != string(rulesOf(t, tt.rules)[chat.DefaultProfile].Compiled()) {
				t.Errorf("the order is %+v", held)
			}
		})
	}
}

// TestNeeded: the enforcer is needed while a chat with rules has a session, and refusals are asked
// for when it ends.
func TestNeeded(t *testing.T) {
	w := newWorld(t, denySecret)
	w.listen()
	expect.True(t, !w.needed(), "the enforcer is needed without a session")
	w.Began(w.chat.ID)
	w.Began("ffeeddccbbaa0099") // reaped by now
	expect.True(t, w.needed(), "the enforcer is not needed for a session with rules")
	w.SetRules(nil)
	expect.True(t, !w.needed(), "the enforcer is needed for rules that were taken away")
	w.SetRules(w.opt.Rules)
	must.Do(t, w.Drop(t.Context(), w.chat.ID))
	expect.True(t, !w.needed() && slices.Equal(w.asked(), []string{orders.Drop, orders.Refused}),
		"the end of a session is not told")
}

// TestDropWithoutRules: the end of a session that never had rules asks no enforcer, which may be
// stopped; one that had rules before a reload is told.
func TestDropWithoutRules(t *testing.T) {
	w := newWorld(t, denySecret)
	w.listen()
	w.SetRules(nil)
	must.Do(t, w.Drop(t.Context(), w.chat.ID)) // as before each wake
	w.Began(w.chat.ID)
	must.Do(t, w.Drop(t.Context(), w.chat.ID))
	if asked := w.asked(); len(asked) > 0 {
		t.Errorf("the enforcer is asked %q", asked)
	}
	w.SetRules(w.opt.Rules)
	w.Began(w.chat.ID)
	w.SetRules(nil)
	must.Do(t, w.Drop(t.Context(), w.chat.ID))
	if asked := w.asked(); !slices.Equal(asked, []string{orders.Drop, orders.Refused}) {
		t.Errorf("the enforcer is asked %q", asked)
	}
}

// TestFollow ends with its context, and asks for the groups of the enforcer meanwhile.
func TestFollow(t *testing.T) {
	w := newWorld(t, denySecret)
	w.listen()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Follow(ctx); close(ended) }()
	until(t, "the groups are asked for", func() bool {
		return slices.Contains(w.asked(), orders.Lend)
	})
	cancel()
	<-ended
}

// TestMasks: what rules close is masked where it is, if the view is in force.
func TestMasks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the masks are made in directories of root")
	}
	w := newWorld(t, "access: {useDefaults: false, deny: ['~/secret', /data/secret]}\n")
	host := t.TempDir()
	must.Do(t, w.MakeMasks(), os.WriteFile(filepath.Join(host, "secret"), nil, 0o600))
	v := plan.View{Home: w.chat.Home, User: w.chat.ID.User(), UID: w.chat.UID,
		Exposed: []chat.Exposed{{Source: host, Target: "/data", Mode: chat.ReadOnly}}}
	masks := w.Masks(w.chat, v)
	expect.True(t, len(masks) == 1 && masks[0].Target == "/data/secret", "masks are %+v", masks)
	v.Without = []chat.LayerName{chat.LayerView}
	if masks := w.Masks(w.chat, v); masks != nil {
		t.Errorf("without the view: %+v", masks)
	}
	v.Without = nil
	w.SetRules(nil)
	if masks := w.Masks(w.chat, v); masks != nil {
		t.Errorf("without rules: %+v", masks)
	}
}

// TestForgetMasks: a mask is forgotten when new rules open its path, and the record says so; what
// they close again is the enforcer's.
func TestForgetMasks(t *testing.T) {
	w := newWorld(t, "access: {useDefaults: false, deny: [/data/a, /data/b]}\n")
	s, dir := &session.Session{Chat: w.chat.ID, UID: w.chat.UID, Init: w.init}, session.Dir{
		Parent: t.TempDir(), Chat: w.chat.ID, UID: w.chat.UID,
	}
	must.Do(t, os.Mkdir(dir.Path(), 0o711))
	forget := func(want ...string) {
		t.Helper()
		must.Do(t, w.ForgetMasks(w.chat, s, dir))
		if got := Masked(s); !slices.Equal(got, want) {
			t.Errorf("masked are %q, want %q", got, want)
		}
	}
	forget() // without masks
	a, b := "/data/a", "/data/b"
	s.Masked.Store(&[]string{a, b})
	forget(a, b)
	if names, _ := os.ReadDir(dir.Path()); len(names) > 0 {
		t.Error("a record was written though nothing changed")
	}
	w.SetRules(rulesOf(t, "access: {useDefaults: false, deny: [/data/b]}\n"))
	forget(b)
	if names, _ := os.ReadDir(dir.Path()); len(names) == 0 {
		t.Error("no record was written")
	}
	w.SetRules(w.opt.Rules)
	forget(b)
}

// TestLayers: the layers say how the rules are enforced in a session.
func TestLayers(t *testing.T) {
	w := newWorld(t, denySecret)
	s := &session.Session{Init: w.init}
	s.Masked.Store(&[]string{"/a", "/b"})
	l := w.ViewLayer(t.Context(), w.chat, s, chat.Layer{State: chat.LayerOn})
	expect.True(t, l.State == chat.LayerWeaker && strings.Contains(l.Probe, "bubblewrap masks 2 denied"),
		"without an enforcer: %+v", l)
	w.SetRules(nil)
	if l := w.ViewLayer(t.Context(), w.chat, s, chat.Layer{}); l.Probe != "" {
		t.Errorf("without rules: %+v", l)
	}
	v := plan.View{Home: w.chat.Home, Denied: []string{"/usr/secret"}}
	if l := LandlockLayer(chat.Layer{}, v); !strings.Contains(l.Probe, "at 1 denied paths") {
		t.Errorf("with a denied path: %+v", l)
	}
	v.Without = []chat.LayerName{chat.LayerLandlock}
	if l := LandlockLayer(chat.Layer{}, v); l.Probe != "" {
		t.Errorf("without Landlock: %+v", l)
	}
}
