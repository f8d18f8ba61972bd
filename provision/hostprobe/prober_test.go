package hostprobe

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/test/expect"
)

// TestExcusing: a layer is left out if sessions come up only without it, config excuses it and the
// first probe is not over. Nothing is excused for a host that has no room.
func TestExcusing(t *testing.T) {
	both := []chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp}
	for name, c := range map[string]struct {
		allowed []chat.LayerName
		lacks   chat.LayerName // without it a session comes up
		fails   error          // of a session; nil is that something is off
		settled bool
		tries   int
		leftOut []chat.LayerName
		up      bool
	}{
		"comes up": {allowed: both, tries: 1, up: true},
		"the second": {
			allowed: both, lacks: chat.LayerSeccomp, tries: 3, leftOut: both[1:], up: true,
		},
		"neither":     {allowed: both, lacks: chat.LayerView, tries: 3},
		"not excused": {allowed: both[:1], lacks: chat.LayerSeccomp, tries: 2},
		"no room":     {allowed: both, lacks: chat.LayerSeccomp, fails: unix.ENOSPC, tries: 1},
		"no time": {
			allowed: both, lacks: chat.LayerSeccomp, fails: layers.ErrSlow, tries: 1,
		},
		"after the first": {
			allowed: both, lacks: chat.LayerSeccomp, settled: true, tries: 1,
		},
		"nothing excusable": {lacks: chat.LayerSeccomp, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			set := layers.New(layers.Options{AllowMissing: c.allowed})
			if c.settled {
				set.EndTrying()
			}
			up := []chat.Layer{{Name: chat.LayerView, State: chat.LayerOn}}
			tries := 0
			got := excusing(set, func() ([]chat.Layer, error) {
				tries++
				if c.lacks == "" || set.Without(c.lacks) {
					return up, nil
				}
				if c.fails != nil {
					return nil, fmt.Errorf("cannot start: %w", c.fails)
				}
				return nil, errors.New("cannot start")
			})
			expect.True(t, tries == c.tries && slices.Equal(set.LeftOut(), c.leftOut),
				"%d tries, left out %v", tries, set.LeftOut())
			expect.True(t, slices.Equal(got, up) == c.up && (c.up || got[0].State != chat.LayerOn),
				"%+v", got)
		})
	}
}

// TestOwnView: the probes' session has a home and trees of its own, and nothing open that the
// profile opens. Where PAM mounts the trees it has their names.
func TestOwnView(t *testing.T) {
	v := plan.View{User: ID.User(), Home: "/homes/0", Tmp: "/t/0", VarTmp: "/v/0",
		PromptFIFO: "/f", Shim: "/shim", Denied: []string{"/probe", "/homes/0/x"},
		Opened: plan.Openings{Netlink: true, Filters: true}}
	o := Options{UID: 7, HomeParent: "/probe"}
	o.TmpParent, o.VarTmpParent = "/probe/tmp", "/probe/vartmp"
	for _, units := range []bool{false, true} {
		o.Units = units
		got := New(o).own(v)
		tmp, varTmp := "/probe/tmp/"+ID.User(), "/probe/vartmp/"+ID.User()
		if units {
			tmp, varTmp = v.Tmp, v.VarTmp
		}
		if got.Home != "/probe/"+string(ID) || got.Tmp != tmp || got.VarTmp != varTmp ||
			!slices.Equal(got.Denied, []string{"/homes/0/x"}) || len(v.Denied) != 2 ||
			got.PromptFIFO != "" || got.Opened != (plan.Openings{}) || got.Shim != v.Shim {
			t.Errorf("units %v: %+v", units, got)
		}
	}
}
