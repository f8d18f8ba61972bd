package shares

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// host is a store, and what is awake and kept on a host that has no process.
type host struct {
	*Shares
	t                  *testing.T
	dir                string
	sessions, runBytes map[string]uint64
	idle               map[string]int // chats that can sleep, of each owner and, for "", of all
	asked              []string       // whose chats were to make room
	woke               int
}

func newHost(t *testing.T, opt Options) *host {
	t.Helper()
	h := &host{
		t: t, dir: t.TempDir(), sessions: map[string]uint64{}, runBytes: map[string]uint64{},
		idle: map[string]int{},
	}
	opt.UIDs = state.Range{Low: 1 << 20, High: 1<<20 + 255}
	store, err := state.Open(state.Options{Dir: h.dir, UIDs: opt.UIDs, BlockSize: 64})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, store.Close()) })
	_, _, err = store.EnsureBlock(chat.DefaultProfile)
	must.Do(t, err)
	opt.Store = store
	opt.Awake = func() map[chat.ID]Place {
		awake := map[chat.ID]Place{}
		for owner, n := range h.sessions {
			for i := range n {
				awake[chat.ID(fmt.Sprint(owner, i))] = Place{owner, each}
			}
		}
		return awake
	}
	opt.RunBytes = func() map[string]uint64 { return h.runBytes }
	opt.MakeRoom = func(_ context.Context, owner string, _ Fits) (made, soon bool, awake string) {
		h.asked = append(h.asked, owner)
		if h.idle[owner] == 0 {
			return false, false, "all at work"
		}
		h.idle[owner]--
		h.sessions[cmp.Or(owner, "bob")]--
		return true, false, ""
	}
	h.Shares = New(opt)
	return h
}

// each is the memory_max of each chat.
const each = 256 << 20

// Wake wakes one more chat of an owner.
func (h *host) Wake(ctx context.Context, owner string) (func(), error) {
	h.woke++
	return h.Shares.Wake(ctx, chat.ID(fmt.Sprint("waking ", h.woke)), Place{owner, each})
}

// as is the context of a bridge or an operator.
func as(t *testing.T, name string, role chat.Role) context.Context {
	return chat.WithCaller(t.Context(), chat.Caller{Name: name, Role: role})
}

// create makes a record as provision does, and returns what refused it.
func (h *host) create(ctx context.Context, owner, id string) error {
	if err := h.Create(ctx, owner); err != nil {
		return err
	}
	event := state.Event{Action: "create", Outcome: "intent", Caller: chat.CallerFrom(ctx)}
	_, _, err := h.Admit(ctx, chat.Spec{ExternalID: id, Owner: owner}, event)
	return err
}

// denied counts the lines of the audit log that deny something for a reason.
func (h *host) denied(rule string) int {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "audit.jsonl"))
	must.Do(h.t, err)
	n := 0
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"denied"`) && strings.Contains(line, rule) {
			n++
		}
	}
	return n
}

// wantSpent fails unless err is that share of ada, spent.
func (h *host) wantSpent(err error, share quota.Share) {
	h.t.Helper()
	var spent *quota.SpentError
	if !errors.As(err, &spent) || spent.Share != share || spent.Owner != "ada" {
		h.t.Errorf("%v, want that %s of ada is spent", err, share)
	}
}

// TestCreate: an owner's chats, uids and creates are bounded, before a record and in the act of
// making one; another owner and an operator go on, and the audit log has each refusal once.
func TestCreate(t *testing.T) {
	for share, limits := range map[quota.Share]quota.Limits{
		quota.Chats:   {quota.Chats: 2},
		quota.UIDs:    {quota.UIDs: 2, quota.Chats: 9},
		quota.Creates: {quota.Creates: 2},
	} {
		h := newHost(t, Options{Limits: limits})
		ada := as(t, "ada", chat.RoleBridge)
		must.Do(t, h.create(ada, "ada", "1"))
		must.Do(t, h.create(ada, "ada", "2"))
		for i := range 5 {
			h.wantSpent(h.create(ada, "ada", fmt.Sprint(3+i)), share)
		}
		if n := h.denied(share.Key()); n != 1 {
			t.Errorf("%s: %d refusals are audited, want 1", share, n)
		}
		if share != quota.Creates { // another create took the last one meanwhile
			event := state.Event{Action: "create", Outcome: "intent", Caller: chat.CallerFrom(ada)}
			_, _, err := h.Admit(ada, chat.Spec{ExternalID: "late", Owner: "ada"}, event)
			h.wantSpent(err, share)
		}
		must.Do(t, h.create(as(t, "bob", chat.RoleBridge), "bob", "1"))
		must.Do(t, h.create(as(t, "root", chat.RoleOperator), "ada", "more"))
		if held := h.Store.UsedBy("ada"); held.Chats != 3 {
			t.Errorf("%s: ada has %d chats, want 3", share, held.Chats)
		}
	}
}

// TestCreateRefused: a create that another share refuses takes none of the minute's.
func TestCreateRefused(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.Creates: 2, quota.Chats: 1}})
	ada := as(t, "ada", chat.RoleBridge)
	must.Do(t, h.create(ada, "ada", "1"))
	for range 3 {
		h.wantSpent(h.create(ada, "ada", "2"), quota.Chats)
	}
	h.Limits[quota.Chats] = 9
	must.Do(t, h.create(ada, "ada", "2"))
	h.wantSpent(h.create(ada, "ada", "3"), quota.Creates)
}

// TestWake: chats count from before they wake until their sessions end, those of one owner and
// those of all; not even an operator exceeds max_awake.
func TestWake(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.Awake: 2}, MaxAwake: 4})
	ada, bob := as(t, "ada", chat.RoleBridge), as(t, "bob", chat.RoleBridge)
	operator := as(t, "root", chat.RoleOperator)
	h.sessions["ada"] = 1
	done, err := h.Wake(ada, "ada")
	must.Do(t, err)
	_, err = h.Wake(ada, "ada")
	h.wantSpent(err, quota.Awake)
	if n := h.denied(quota.Awake.Key()); n != 1 {
		t.Errorf("%d refusals are audited, want 1", n)
	}
	_, err = h.Wake(bob, "bob")
	must.Do(t, err)
	_, err = h.Wake(operator, "ada")
	must.Do(t, err)
	_, err = h.Wake(operator, "bob")
	const all = "4 chats are awake, of all owners"
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), all), "a fifth: %v", err)
	done() // it could not be woken
	_, err = h.Wake(bob, "bob")
	must.Do(t, err)
	if n := byOwner(h.waking); n["ada"] != 1 || n["bob"] != 2 {
		t.Errorf("waking: %v", h.waking)
	}
}

// TestWakeMakesRoom: a wake above a bound takes the place of an idle chat: of the same owner above
// the owner's share, of any owner above max_awake. A refusal says what keeps the others awake.
func TestWakeMakesRoom(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.Awake: 2}, MaxAwake: 4})
	ada, bob := as(t, "ada", chat.RoleBridge), as(t, "bob", chat.RoleBridge)
	h.sessions["ada"], h.sessions["bob"] = 2, 1
	h.idle["ada"], h.idle[""] = 1, 1
	done, err := h.Wake(ada, "ada")
	must.Do(t, err)
	h.sessions["ada"]++ // it is awake now
	done()
	_, err = h.Wake(ada, "ada")
	h.wantSpent(err, quota.Awake)
	expect.True(t, strings.Contains(err.Error(), "put one to sleep (all at work)"),
		"the owner's share is spent: %v", err)
	h.sessions["bob"] = 2
	done, err = h.Wake(bob, "cyd")
	must.Do(t, err)
	h.sessions["cyd"]++
	done()
	_, err = h.Wake(bob, "cyd")
	const all = "max_awake: put one to sleep (all at work)"
	expect.True(t, errors.Is(err, chat.ErrBusy) && strings.Contains(err.Error(), all),
		"the host is full: %v", err)
	if want := []string{"ada", "ada", "", ""}; !slices.Equal(h.asked, want) {
		t.Errorf("room was made by %q, want %q", h.asked, want)
	}
	h.asked, h.idle[""] = nil, 1
	_, err = h.Wake(ada, "ada")
	h.wantSpent(err, quota.Awake)
	expect.True(t, slices.Equal(h.asked, []string{"ada"}),
		"for an owner without a share left, room was made by %q", h.asked)
}

// TestWakesInOrder: wakes of one owner are admitted in order, those of several in turn, and one
// whose caller has left is not.
func TestWakesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan struct{})
		var order []string
		none := func() map[chat.ID]Place { return map[chat.ID]Place{} }
		s := New(Options{MaxAwake: 1, Awake: none})
		s.Options.MakeRoom = func(
			ctx context.Context, _ string, _ Fits,
		) (made, soon bool, awake string) {
			<-first
			order = append(order, chat.CallerFrom(ctx).Name)
			return false, false, "all at work"
		}
		s.waking["other"] = Place{Owner: "other"}
		var wakes sync.WaitGroup
		wake := func(ctx context.Context, name, owner string) {
			wakes.Go(func() {
				ctx = chat.WithCaller(ctx, chat.Caller{Name: name, Role: chat.RoleOperator})
				_, err := s.Wake(ctx, chat.ID(name), Place{Owner: owner})
				expect.True(t, errors.Is(err, chat.ErrBusy), "%s: %v", name, err)
			})
			synctest.Wait()
		}
		leaver, leave := context.WithCancel(t.Context())
		wake(t.Context(), "a1", "a")
		wake(t.Context(), "a2", "a")
		wake(leaver, "a3", "a")
		wake(t.Context(), "a4", "a")
		wake(t.Context(), "b1", "b")
		leave()
		synctest.Wait()
		close(first)
		wakes.Wait()
		if want := []string{"a1", "a2", "b1", "a4"}; !slices.Equal(order, want) {
			t.Errorf("the order is %q, want %q", order, want)
		}
	})
}

// TestWakeCountsOnce: a chat that has just woken, or whose last session has ended and is still
// known, counts once.
func TestWakeCountsOnce(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.Awake: 1}, MaxAwake: 2})
	ada, bob := as(t, "ada", chat.RoleBridge), as(t, "bob", chat.RoleBridge)
	h.sessions["ada"] = 1 // "ada0", which has ended
	_, err := h.Shares.Wake(ada, "ada0", Place{Owner: "ada"})
	must.Do(t, err)
	_, err = h.Wake(bob, "bob")
	must.Do(t, err)
	expect.True(t, len(h.asked) == 0, "room was made by %q", h.asked)
}

// TestWakeForgets: owners of whom nobody wakes take no memory.
func TestWakeForgets(t *testing.T) {
	h := newHost(t, Options{})
	done, err := h.Wake(as(t, "ada", chat.RoleBridge), "ada")
	must.Do(t, err)
	done()
	expect.True(t, len(h.waking) == 0, "nobody wakes, and these are known: %v", h.waking)
}

// TestRun: what background runs keep is bounded for a bridge, and a refusal is audited.
func TestRun(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.RunBytes: 100}})
	ada := as(t, "ada", chat.RoleBridge)
	check := h.Run(ada, "ada")
	must.Do(t, check(60, 40))
	err := h.Refused(ada, "run", fmt.Errorf("cannot run: %w", check(60, 41)))
	h.wantSpent(err, quota.RunBytes)
	if n := h.denied(`"run"`); n != 1 {
		t.Errorf("%d refusals are audited, want 1", n)
	}
	must.Do(t, h.Run(as(t, "root", chat.RoleOperator), "ada")(60, 41))
	other := errors.New("no such chat")
	if err := h.Refused(ada, "run", other); err != other || h.denied(`"run"`) != 1 {
		t.Errorf("an error that is no share's: %v", err)
	}
}

// TestUses: each owner's use is shown, and half of a share, of the uids and of max_awake is a
// finding.
func TestUses(t *testing.T) {
	h := newHost(t, Options{
		Limits:   quota.Limits{quota.Chats: 4, quota.RunBytes: 100, quota.Creates: 60},
		MaxAwake: 6,
	})
	ada := as(t, "ada", chat.RoleBridge)
	must.Do(t, h.create(ada, "ada", "1"))
	must.Do(t, h.create(ada, "ada", "2"))
	h.sessions["ada"], h.sessions["bob"], h.runBytes["bob"] = 1, 1, 49
	uses := h.Uses()
	for _, want := range []chat.ShareUse{
		{Owner: "ada", Share: "chats", Used: 2, Limit: 4},
		{Owner: "ada", Share: "uids", Used: 2},
		{Owner: "ada", Share: "awake", Used: 1},
		{Owner: "bob", Share: "awake", Used: 1},
		{Owner: "bob", Share: "run_bytes", Used: 49, Limit: 100},
	} {
		expect.True(t, slices.Contains(uses, want), "%+v is not in %+v", want, uses)
	}
	expect.True(t, slices.ContainsFunc(uses, func(u chat.ShareUse) bool { return u.Share == "creates" }),
		"no creates in %+v", uses)
	findings := h.Findings(uses)
	expect.True(t, len(findings) == 1 && strings.Contains(findings[0], `"ada" has 2 of at most 4`),
		"findings: %q", findings)
	h.sessions["bob"], h.runBytes["bob"] = 2, 50
	for h.Store.Given() < 128 {
		operator := as(t, "root", chat.RoleOperator)
		must.Do(t, h.create(operator, "cyd", fmt.Sprint(h.Store.Given())))
		_, _, err := h.Store.EnsureBlock(chat.DefaultProfile)
		must.Do(t, err)
	}
	all := strings.Join(h.Findings(h.Uses()), "\n")
	for _, want := range []string{
		"max_awake: 3 of at most 6", "uids: 128 of 256", "owner_shares.run_bytes",
	} {
		expect.True(t, strings.Contains(all, want), "%q is not in %s", want, all)
	}
}

// TestUIDsOfAll: whoever names another owner for each chat, as an operator too, gets uidsAtOnce and
// then one every uidEvery. What an owner's own bound refuses takes none of that.
func TestUIDsOfAll(t *testing.T) {
	h := newHost(t, Options{Limits: quota.Limits{quota.Creates: 1}})
	now := time.Now()
	h.uids = quota.NewAllowance(uidsAtOnce, uidEvery, func() time.Time { return now })
	bridge := chat.WithCaller(t.Context(), chat.Caller{Name: "ann", Role: chat.RoleBridge})
	for i := range 30 {
		if err := h.Create(bridge, "ann"); (err == nil) != (i == 0) {
			t.Fatalf("create %d of ann: %v", i, err)
		}
	}
	front := chat.WithCaller(t.Context(), chat.Caller{Name: "root", Role: chat.RoleOperator})
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, uidsAtOnce - 1}, {uidEvery - 1, 0}, {1, 1}, {10 * uidEvery, 10}} {
		now = now.Add(step.after)
		got := 0
		for i := range uidsAtOnce + 100 {
			err := h.Create(front, fmt.Sprint("owner", i))
			if err != nil && !errors.Is(err, chat.ErrBusy) {
				t.Fatal(err)
			}
			if err == nil {
				got++
			}
		}
		expect.True(t, got == step.want, "after %v %d chats, want %d", step.after, got, step.want)
	}
	name := chat.NewArchiveName("0123456789abcdef", now)
	if _, err := h.Unarchive(front, name, state.Record{}, state.Event{}); !errors.Is(err,
		chat.ErrBusy) {
		t.Errorf("an archive is taken out: %v", err)
	}
}
