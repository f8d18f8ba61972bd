package roottest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// forBridges is a host on which the profile web, which has egress, is for these bridges.
func forBridges(opt provision.Options, bridges ...string) provision.Options {
	web := opt.Profiles["web"]
	web.Bridges = bridges
	opt.Profiles = map[string]chat.Profile{"default": opt.Profiles["default"], "web": web}
	return opt
}

// TestAttackForeignProfile: a bridge does not get the egress that was opened for another's
// chats, is told why, and stands in the audit log.
func TestAttackForeignProfile(t *testing.T) {
	no := false
	spec := chat.Spec{ExternalID: "x", Profile: "web", Awake: &no}
	opt := forBridges(options(t), "honest")
	m := open(t, opt)
	_, _, err := m.Create(asBridge(t.Context(), "greedy"), spec)
	if !errors.Is(err, chat.ErrDenied) || !strings.Contains(err.Error(), `profile "web"`) || strings.Contains(err.Error(), "honest") {
		t.Errorf("greedy: %v, want denied, with the profile and without the others' names", err)
	}
	log := must.Get(os.ReadFile(filepath.Join(opt.State, "audit.jsonl")))(t)
	if !strings.Contains(string(log), `"outcome":"denied"`) || !strings.Contains(string(log), `"rule":"bridges"`) {
		t.Errorf("audit log: %s", log)
	}
	honest, _, err := m.Create(asBridge(t.Context(), "honest"), spec)
	must.Do(t, err)
	spec.Owner = "greedy"
	expect.Is(t, expect.Err(m.Create(operator(t.Context()), spec)), nil, "an operator")
	expect.True(t, honest.Profile == "web", "%+v", honest)
}

// TestAttackForeignProfileWithout: nothing but the list keeps a bridge out of the profile.
func TestAttackForeignProfileWithout(t *testing.T) {
	m := open(t, forBridges(options(t), chat.EveryBridge))
	no := false
	c, _, err := m.Create(asBridge(t.Context(), "greedy"), chat.Spec{ExternalID: "x", Profile: "web", Awake: &no})
	expect.True(t, err == nil && c.Profile == "web", "a profile for all: %+v, %v", c, err)
}

// TestProfileIsKept: a chat that is there is found, woken and run in after its owner was
// taken off the profile's list. A new one is not made, also not under the name of one
// that was reaped.
func TestProfileIsKept(t *testing.T) {
	ctx := asBridge(t.Context(), "ada")
	opt := forBridges(options(t), "ada")
	m := must.Get(openManager(t.Context(), opt))(t)
	no := false
	spec := chat.Spec{ExternalID: "x", Profile: "web", Awake: &no}
	c, _, err := m.Create(ctx, spec)
	must.Do(t, err)
	must.Do(t, m.Close())
	m2 := open(t, forBridges(opt, "bob"))
	found, created, err := m2.Create(ctx, spec)
	expect.True(t, err == nil && !created && found.ID == c.ID,
		"found again: %+v, %v, %v", found, created, err)
	if r, err := m2.Run(ctx, c.ID, chat.RunSpec{Command: "true"}); err != nil || r.Exit != 0 {
		t.Errorf("run: %+v, %v", r, err)
	}
	must.Do(t, m2.Reap(ctx, c.ID))
	expect.Is(t, expect.Err(m2.Create(ctx, spec)), chat.ErrDenied, "after its end")
}
