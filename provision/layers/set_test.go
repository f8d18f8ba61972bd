package layers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// probed is a probe that found every layer on but some.
func probed(but ...chat.Layer) Result {
	f := every(func(l chat.Layer) chat.Layer { return layer(l.Name, chat.LayerOn, "a wall") })
	for _, l := range but {
		f.layers[l.Name] = l
	}
	return f
}

var (
	noView = chat.Layer{Name: chat.LayerView, State: chat.LayerOff,
		Probe: "it is open", Fix: "close it"}
	unknown = chat.Layer{Name: chat.LayerView, State: chat.LayerUnknown,
		Probe: "no room", Fix: "wait"}
	viewOnly = []chat.LayerName{chat.LayerView}
)

// TestAwait: nothing begins before a probe has found every required layer in force; what fails
// later changes nothing.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		opt        Options
		found      Result
		unprepared error
		want       error
		says       string
	}{
		"all on": {found: probed()},
		"missing": {found: probed(noView), want: chat.ErrUnsupported,
			says: "missing: view: see chatd doctor"},
		"excused":  {opt: Options{AllowMissing: viewOnly}, found: probed(noView)},
		"left out": {opt: Options{Without: viewOnly}, found: probed(noView)},
		"unknown": {found: probed(unknown), want: chat.ErrBusy,
			says: "view (no room; wait)"},
		"unknown, excused": {opt: Options{AllowMissing: viewOnly}, found: probed(unknown)},
		"no directories": {found: probed(), unprepared: unix.ENOSPC, want: chat.ErrBusy,
			says: OwnDirectories},
		"nothing was tried": {found: Untried(unix.ENOSPC), want: chat.ErrBusy, says: "home"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(c.opt)
			s.SetPrepared(c.unprepared)
			s.Put(c.found)
			s.EndTrying()
			err := s.Await(t.Context())
			must.True(t, errors.Is(err, c.want) && (err == nil) == (c.want == nil),
				"%v, want %v", err, c.want)
			expect.True(t, err == nil || strings.Contains(err.Error(), c.says),
				"%q is not in: %v", c.says, err)
			expect.True(t, s.Fit() == (err == nil), "fit and Await disagree")
			s.SetPrepared(nil)
			s.Put(probed())
			s.Put(probed(noView))
			s.SetPrepared(unix.EROFS)
			s.Put(probed())
			if err := s.Await(t.Context()); err != nil || !s.Fit() {
				t.Errorf("after one good probe: %v", err)
			}
		})
	}
}

// TestAwaitFirst: before the first probe a caller waits, and is told that it is too early.
func TestAwaitFirst(t *testing.T) {
	s := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Await(ctx); !errors.Is(err, chat.ErrBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	expect.True(t, !s.Tried() && !s.Fit() && len(s.Missing()) == 0, "a layer that was not tried counts")
	err := s.Await(t.Context())
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), "just started"), "%v", err)
}

// TestRequire: a host that lacks a layer is refused with the fix, unless config excuses it.
func TestRequire(t *testing.T) {
	s := New(Options{})
	s.Put(probed(noView))
	err := s.Require()
	if !errors.Is(err, chat.ErrUnsupported) ||
		!strings.Contains(err.Error(), "view: it is open\n    fix: close it") {
		t.Errorf("%v", err)
	}
	if got := s.Missing(); !slices.Equal(got, viewOnly) {
		t.Errorf("%v", got)
	}
	s = New(Options{AllowMissing: viewOnly})
	s.Put(probed(noView))
	if err := s.Require(); err != nil || len(s.Missing()) > 0 {
		t.Errorf("excused: %v", err)
	}
}

// TestExcuse: only what config allows is excused, and nothing new after the first probe.
func TestExcuse(t *testing.T) {
	s := New(Options{
		AllowMissing: []chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp, chat.LayerHome},
		Without:      []chat.LayerName{chat.LayerSeccomp},
	})
	if got := s.Excusable(); !slices.Equal(got, []chat.LayerName{chat.LayerLandlock}) {
		t.Errorf("%v", got)
	}
	s.Excuse(chat.LayerView)
	s.Excuse(chat.LayerLandlock)
	want := []chat.LayerName{chat.LayerSeccomp, chat.LayerLandlock}
	if got := s.LeftOut(); !slices.Equal(got, want) || s.Without(chat.LayerView) {
		t.Errorf("%v", got)
	}
	s.Unexcuse(chat.LayerLandlock)
	expect.True(t, !s.Without(chat.LayerLandlock) && s.Without(chat.LayerSeccomp), "%v", s.LeftOut())
	s.EndTrying()
	if got := s.Excusable(); got != nil {
		t.Errorf("after the first probe: %v", got)
	}
}

// TestOf: sessions of a kind of network have its layer; the rest is the host's, outermost first.
func TestOf(t *testing.T) {
	s := New(Options{})
	s.Put(Merge([]chat.Layer{layer(chat.LayerProc, chat.LayerOn, "pidns"),
		layer(chat.LayerHome, chat.LayerOn, "mode")},
		[]chat.Layer{layer(chat.LayerNetwork, chat.LayerOn, "namespace")},
		layer(chat.LayerNetwork, chat.LayerOff, "redirect"),
		[]chat.Network{chat.NetworkNone, chat.NetworkOwn}))
	for kind, want := range map[chat.Network]chat.LayerState{
		chat.NetworkNone: chat.LayerOn, chat.NetworkOwn: chat.LayerOff,
	} {
		got := s.Of(kind)
		if len(got) != 3 || got[0].Name != chat.LayerHome || got[1].State != want ||
			got[2].Name != chat.LayerProc {
			t.Errorf("%s: %+v", kind, got)
		}
	}
	if s.Host()[1].State != chat.LayerOff || s.Stands(chat.LayerNetwork) ||
		!s.Stands(chat.LayerProc) {
		t.Errorf("%+v", s.Host())
	}
}
