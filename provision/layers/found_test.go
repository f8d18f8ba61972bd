package layers

import (
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// layer is a result in short.
func layer(name chat.LayerName, state chat.LayerState, by string) chat.Layer {
	return chat.Layer{Name: name, State: state, By: by, Probe: by + " was tried"}
}

// TestMerge: of two results for one layer the worse counts, and the network's is that of the kinds
// that profiles use.
func TestMerge(t *testing.T) {
	none, own := chat.NetworkNone, chat.NetworkOwn
	outside := []chat.Layer{layer(chat.LayerView, chat.LayerOn, "mode"),
		layer(chat.LayerMemory, chat.LayerOn, "v2")}
	inside := []chat.Layer{layer(chat.LayerNetwork, chat.LayerOn, "namespace"),
		layer(chat.LayerView, chat.LayerWeaker, "bwrap")}
	redirect := layer(chat.LayerNetwork, chat.LayerOff, "redirect")
	for _, c := range []struct {
		used []chat.Network
		want chat.LayerState
	}{
		{nil, chat.LayerOn}, {[]chat.Network{none}, chat.LayerOn},
		{[]chat.Network{own}, chat.LayerOff},
		{[]chat.Network{own, none, none}, chat.LayerOff},
	} {
		f := Merge(outside, inside, redirect, c.used)
		if got := f.layers[chat.LayerNetwork]; got.State != c.want {
			t.Errorf("network of %v: %+v, want %s", c.used, got, c.want)
		}
		if f.layers[chat.LayerView].State != chat.LayerWeaker ||
			f.layers[chat.LayerMemory].By != "v2" {
			t.Errorf("%+v", f.layers)
		}
		expect.True(t, f.network[none].State == chat.LayerOn && f.network[own].State == chat.LayerOff,
			"%+v", f.network)
	}
}

// TestWithRun: what a run lacks counts, and says where it was found.
func TestWithRun(t *testing.T) {
	session := []chat.Layer{layer(chat.LayerSeccomp, chat.LayerOn, "filter"),
		layer(chat.LayerProc, chat.LayerOn, "a"), layer(chat.LayerView, chat.LayerOff, "bwrap")}
	run := []chat.Layer{layer(chat.LayerSeccomp, chat.LayerOff, "filter"),
		layer(chat.LayerProc, chat.LayerOn, "b"), layer(chat.LayerView, chat.LayerOn, "bwrap"),
		layer(chat.LayerPath, chat.LayerOn, "shims")}
	want := []chat.Layer{
		{Name: chat.LayerSeccomp, State: chat.LayerOff, By: "filter",
			Probe: "in a run: filter was tried"},
		{Name: chat.LayerProc, State: chat.LayerOn, By: "a, b", Probe: "a was tried; b was tried"},
		layer(chat.LayerView, chat.LayerOff, "bwrap"), layer(chat.LayerPath, chat.LayerOn, "shims"),
	}
	got := WithRun(session, run)
	must.True(t, len(got) == len(want), "%+v", got)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
	expect.True(t, session[0].State == chat.LayerOn, "the session's own results were changed")
}

// TestAdded: a remark is added only to a layer in force.
func TestAdded(t *testing.T) {
	for state, want := range map[chat.LayerState]string{
		chat.LayerOn: "pam_namespace, bind", chat.LayerWeaker: "pam_namespace, bind",
		chat.LayerOff: "bind", chat.LayerUnknown: "bind",
	} {
		f := probed(layer(chat.LayerTmp, state, "bind"), layer(chat.LayerProc, state, "pidns"))
		f.AddPAM()
		f.AddProc(1879113728)
		if got := f.layers[chat.LayerTmp].By; got != want {
			t.Errorf("%s: %q", state, got)
		}
		added := f.layers[chat.LayerProc].Probe != "pidns was tried"
		expect.True(t, added == (want != "bind") && f.layers[chat.LayerProc].State == state,
			"%s: %+v", state, f.layers[chat.LayerProc])
	}
}

// TestWorseNames: of two equal results the one that says more is taken, and others stand together.
func TestWorseNames(t *testing.T) {
	on := func(by string) chat.Layer { return layer(chat.LayerNetwork, chat.LayerOn, by) }
	for _, c := range [][3]string{
		{"ns", "ns, nftables", "ns, nftables"}, {"ns, nftables", "ns", "ns, nftables"},
		{"a", "b", "a, b"}, {"", "b", "b"},
	} {
		if got := worse(on(c[0]), on(c[1])); got.By != c[2] {
			t.Errorf("%q and %q: %q, want %q", c[0], c[1], got.By, c[2])
		}
	}
}
