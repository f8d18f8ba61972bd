package roottest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// wantSpent fails unless err says that the greedy owner's share is used up.
func wantSpent(t testing.TB, what string, err error, share quota.Share) {
	t.Helper()
	var spent *quota.SpentError
	if !errors.Is(err, chat.ErrBusy) || !errors.As(err, &spent) || spent.Share != share || spent.Owner != "greedy" {
		t.Errorf("%s: %v, want %s spent", what, err, share.Key())
	}
}

// tryCreate creates a chat of the bridge, asleep.
func tryCreate(t testing.TB, m *manager, bridge, external string) (chat.Chat, error) {
	c, _, err := m.Create(asBridge(t.Context(), bridge), chat.Spec{ExternalID: external, Awake: new(false)})
	return c, err
}

// TestAttackShareOfUIDs: a bridge that creates and deletes for ever uses up its own uids, also
// over a restart, and another bridge and an operator get theirs.
func TestAttackShareOfUIDs(t *testing.T) {
	opt := attackOptions(t)
	opt.Shares = quota.Limits{quota.UIDs: 3, quota.Chats: 2}
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	for i := range 2 {
		c := must.Get(tryCreate(t, m, "greedy", fmt.Sprint(i)))(t)
		must.Do(t, m.Reap(asBridge(t.Context(), "greedy"), c.ID))
	}
	must.Do(t, m.Close())
	m = open(t, opt)
	expect.Is(t, expect.Err(tryCreate(t, m, "greedy", "third")), nil, "the third of three uids")
	_, err = tryCreate(t, m, "greedy", "fourth")
	wantSpent(t, "the fourth", err, quota.UIDs)
	for range 3 {
		_, err := tryCreate(t, m, "greedy", "again")
		wantSpent(t, "once more", err, quota.UIDs)
	}
	expect.Is(t, expect.Err(tryCreate(t, m, "honest", "x")), nil, "another bridge")
	_, _, err = m.Create(operator(t.Context()), chat.Spec{ExternalID: "x", Owner: "greedy", Awake: new(false)})
	expect.True(t, err == nil, "an operator, for the greedy one: %v", err)
	host := must.Get(m.Host(operator(t.Context())))(t)
	if !slices.Contains(host.Shares, chat.ShareUse{Owner: "greedy", Share: "uids", Used: 4, Limit: 3}) {
		t.Errorf("shares: %+v", host.Shares)
	}
	if !slices.ContainsFunc(host.Findings, func(f string) bool { return strings.Contains(f, `owner_shares.uids: owner "greedy"`) }) {
		t.Errorf("findings: %q", host.Findings)
	}
	n := len(auditLines(t, opt, `"rule":"owner_shares.uids"`))
	expect.True(t, n == 1, "%d lines of audit for four refusals in a minute, want 1", n)
}

// TestAttackShareOfChats: chats that are there.
func TestAttackShareOfChats(t *testing.T) {
	opt := attackOptions(t)
	opt.Shares = quota.Limits{quota.Chats: 1}
	m := open(t, opt)
	first, err := tryCreate(t, m, "greedy", "1")
	must.Do(t, err)
	_, err = tryCreate(t, m, "greedy", "2")
	wantSpent(t, "a second chat", err, quota.Chats)
	if again, err := tryCreate(t, m, "greedy", "1"); err != nil || again.ID != first.ID {
		t.Errorf("the one that is there: %v", err)
	}
	must.Do(t, m.Reap(asBridge(t.Context(), "greedy"), first.ID))
	if _, err = tryCreate(t, m, "greedy", "2"); err != nil {
		t.Errorf("after a reap: %v", err)
	}
}

// TestAttackShareOfCreates: new chats in a minute.
func TestAttackShareOfCreates(t *testing.T) {
	opt := attackOptions(t)
	opt.Shares = quota.Limits{quota.Creates: 1}
	m := open(t, opt)
	must.Get(tryCreate(t, m, "greedy", "1"))(t)
	_, err := tryCreate(t, m, "greedy", "2")
	wantSpent(t, "a second in a minute", err, quota.Creates)
	expect.Is(t, expect.Err(tryCreate(t, m, "honest", "1")), nil, "another bridge")
}

// TestAttackShareOfAwake: sessions, those that a restart adopted too, and those that a file
// tool needs for a chat that is asleep; and what background runs may keep.
func TestAttackShareOfAwake(t *testing.T) {
	opt := keepAwake(attackOptions(t))
	opt.Shares = quota.Limits{quota.Awake: 1, quota.RunBytes: 3 << 20}
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	greedy := asBridge(t.Context(), "greedy")
	one, two, other := sleepingOf(t, m, "greedy", "1"), sleepingOf(t, m, "greedy", "2"), sleepingOf(t, m, "honest", "1")
	must.Get(m.Wake(greedy, one.ID))(t)
	must.Do(t, m.Close())
	m = open(t, opt)
	_, err = m.Wake(greedy, two.ID)
	wantSpent(t, "a second session", err, quota.Awake)
	_, err = m.Run(greedy, two.ID, chat.RunSpec{Command: "true"})
	wantSpent(t, "a run that wakes", err, quota.Awake)
	expect.Is(t, expect.Err(m.Wake(asBridge(t.Context(), "honest"), other.ID)), nil, "another bridge")
	must.Get(m.StartRun(greedy, one.ID, chat.RunSpec{Command: "sleep 100"}))(t)
	_, err = m.StartRun(greedy, one.ID, chat.RunSpec{Command: "true"})
	wantSpent(t, "a second background run of 2 MiB", err, quota.RunBytes)
	expect.Is(t, expect.Err(m.Run(greedy, one.ID, chat.RunSpec{Command: "true"})), nil,
		"a run that keeps nothing")
	must.Get(m.Sleep(greedy, one.ID))(t)
	expect.Is(t, expect.Err(m.Wake(greedy, two.ID)), nil, "after one was put to sleep")
}

// TestAttackSharesWithout: without shares one bridge takes every place there is, and another
// gets none.
func TestAttackSharesWithout(t *testing.T) {
	opt := keepAwake(attackOptions(t)) // or the first of them would sleep, after a moment
	opt.MaxAwake = 2
	m := open(t, opt)
	for i := range 2 {
		_, _, err := m.Create(asBridge(t.Context(), "greedy"), chat.Spec{ExternalID: fmt.Sprint(i)})
		must.Do(t, err)
	}
	other := sleepingOf(t, m, "honest", "x")
	expect.Is(t, expect.Err(m.Wake(asBridge(t.Context(), "honest"), other.ID)), chat.ErrBusy,
		"another bridge")
}

// forBridges is a host on which the profile web, which has egress, is for these bridges.
func forBridges(opt provision.Options, bridges ...string) provision.Options {
	opt.Profiles = maps.Clone(opt.Profiles)
	edit(opt, "web", func(p *chat.Profile) { p.Bridges = bridges })
	return opt
}

// TestAttackForeignProfile: a bridge does not get the egress that was opened for another's
// chats, is told why, and stands in the audit log.
func TestAttackForeignProfile(t *testing.T) {
	spec := chat.Spec{ExternalID: "x", Profile: "web", Awake: new(false)}
	opt := forBridges(options(t), "honest")
	m := open(t, opt)
	_, _, err := m.Create(asBridge(t.Context(), "greedy"), spec)
	if !errors.Is(err, chat.ErrDenied) || !strings.Contains(err.Error(), `profile "web"`) || strings.Contains(err.Error(), "honest") {
		t.Errorf("greedy: %v, want denied, with the profile and without the others' names", err)
	}
	expect.True(t, len(auditLines(t, opt, `"outcome":"denied"`, `"rule":"bridges"`)) > 0, "it is not audited")
	honest := must.First(m.Create(asBridge(t.Context(), "honest"), spec))(t)
	spec.Owner = "greedy"
	expect.Is(t, expect.Err(m.Create(operator(t.Context()), spec)), nil, "an operator")
	expect.True(t, honest.Profile == "web", "%+v", honest)
}

// TestAttackForeignProfileWithout: nothing but the list keeps a bridge out of the profile.
func TestAttackForeignProfileWithout(t *testing.T) {
	m := open(t, forBridges(options(t), chat.EveryBridge))
	c, _, err := m.Create(asBridge(t.Context(), "greedy"), chat.Spec{ExternalID: "x", Profile: "web", Awake: new(false)})
	expect.True(t, err == nil && c.Profile == "web", "a profile for all: %+v, %v", c, err)
}

// TestProfileIsKept: a chat that is there is found, woken and run in after its owner was
// taken off the profile's list. A new one is not made, also not under the name of one
// that was reaped.
func TestProfileIsKept(t *testing.T) {
	ctx := asBridge(t.Context(), "ada")
	opt := forBridges(options(t), "ada")
	m := must.Get(openManager(t.Context(), opt))(t)
	spec := chat.Spec{ExternalID: "x", Profile: "web", Awake: new(false)}
	c := must.First(m.Create(ctx, spec))(t)
	must.Do(t, m.Close())
	m2 := open(t, forBridges(opt, "bob"))
	found, created, err := m2.Create(ctx, spec)
	expect.True(t, err == nil && !created && found.ID == c.ID,
		"found again: %+v, %v, %v", found, created, err)
	r, err := m2.Run(ctx, c.ID, chat.RunSpec{Command: "true"})
	expect.True(t, err == nil && r.Exit == 0, "run: %+v, %v", r, err)
	must.Do(t, m2.Reap(ctx, c.ID))
	expect.Is(t, expect.Err(m2.Create(ctx, spec)), chat.ErrDenied, "after its end")
}
