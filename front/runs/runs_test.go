package runs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/front/schedule"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// fake keeps schedules, and runs last until a test ends them.
type fake struct {
	*apitest.Memory
	mu     sync.Mutex
	kept   []chat.StoredSchedule
	begun  []chat.DueSchedule
	ended  []chat.DueSchedule
	losing int
	finish chan struct{}
	hangs  chan struct{} // Explain says so there, and does not answer
	calls  chan string   // what was called, as it is called

	terms   func(ctx context.Context) (chat.Terms, error)
	ran     []chat.RunSpec
	asked   []chat.Question
	refused []chat.RefusedRun
	answer  chat.Explained // of the rules
	network chat.Network
}

func (r *fake) PutSchedule(_ context.Context, id chat.ID, n chat.NewSchedule) (chat.Schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := chat.Schedule{ID: "s", Spec: n.Spec, CreatedAt: n.Made, Next: &n.Next}
	r.ran = append(r.ran, chat.RunSpec{Command: n.Spec.Command, Argv: n.Spec.Argv, Named: n.Named})
	r.kept = append(r.kept, chat.StoredSchedule{Schedule: s, Chat: id, Owner: "o"})
	return s, nil
}

func (r *fake) KeptSchedules(_ context.Context, out func(chat.StoredSchedule) error) error {
	r.mu.Lock()
	all := slices.Clone(r.kept)
	r.mu.Unlock()
	for _, k := range all {
		if err := out(k); err != nil {
			return err
		}
	}
	return nil
}

func (r *fake) KeptSchedule(_ context.Context, id chat.ID, name string) (chat.StoredSchedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost() {
		return chat.StoredSchedule{}, verbs.ErrUnreached
	}
	for _, k := range r.kept {
		if k.Chat == id && k.ID == name {
			return k, nil
		}
	}
	return chat.StoredSchedule{}, chat.ErrNotFound
}

func (r *fake) Schedule(ctx context.Context, id chat.ID, name string) (chat.Schedule, error) {
	k, err := r.KeptSchedule(ctx, id, name)
	return k.Schedule, err
}

// lost reports that a call does not arrive: one of two, while some are to be lost.
func (r *fake) lost() bool {
	if r.losing > 0 {
		r.losing--
	}
	return r.losing%2 == 1
}

func (r *fake) BeginDue(_ context.Context, d chat.DueSchedule) (bool, error) {
	r.mu.Lock()
	if r.lost() {
		r.mu.Unlock()
		return false, verbs.ErrUnreached
	}
	r.begun = append(r.begun, d)
	r.mu.Unlock()
	r.calls <- "begin"
	return true, nil
}

func (r *fake) AwaitDue(ctx context.Context, _ chat.DueSchedule) error {
	select {
	case <-r.finish:
		r.calls <- "end"
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *fake) AddSkipped(_ context.Context, d chat.DueSchedule) error {
	r.mu.Lock()
	r.ended = append(r.ended, d)
	r.mu.Unlock()
	r.calls <- "skipped"
	return nil
}

// hand is a clock that a test moves.
type hand struct {
	mu  sync.Mutex
	now time.Time
}

func (h *hand) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// After ends every few milliseconds, whatever was asked for: a caller that read the time before the
// clock was moved looks again.
func (h *hand) After(time.Duration) <-chan time.Time { return time.After(5 * time.Millisecond) }

func (h *hand) move(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = h.now.Add(d)
}

func opened(t *testing.T, r *fake, h *hand) *Chats {
	t.Helper()
	r.calls, r.finish = make(chan string, 10), make(chan struct{})
	if r.Memory == nil {
		r.Memory = apitest.New()
	}
	if r.terms == nil {
		r.terms = func(context.Context) (chat.Terms, error) { return chat.Terms{Home: "/home/u"}, nil }
	}
	clock := schedule.Clock{Now: h.Now, After: h.After}
	c := must.Get(Open(t.Context(), r, Options{Clock: clock}))(t)
	return c
}

func (r *fake) await(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-r.calls:
		must.True(t, got == want, "%s was called, want %s", got, want)
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s was never called", want)
	}
}

func noon() *hand { return &hand{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

// TestDue: a time that has come is begun and ended once, with what was skipped meanwhile.
func TestDue(t *testing.T) {
	r, h := &fake{}, noon()
	c := opened(t, r, h)
	c.Begin()
	defer c.Close()
	s, err := c.AddSchedule(t.Context(), "a", chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"})
	must.True(t, err == nil && s.Next != nil && s.Next.Equal(h.Now().Add(time.Minute)), "%+v, %v", s, err)
	h.move(time.Minute)
	r.await(t, "begin")
	h.move(time.Minute) // its run goes on
	for skipped := uint64(0); skipped == 0; {
		got := must.Get(c.Schedule(t.Context(), "a", s.ID))(t)
		skipped = got.Skipped
	}
	close(r.finish)
	r.await(t, "end")
	r.await(t, "skipped")
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.begun[0]; !d.At.Equal(*s.Next) || !d.Next.Equal(s.Next.Add(time.Minute)) || d.Skipped != 0 || d.GoesOn || d.Now.IsZero() {
		t.Errorf("begun %+v", d)
	}
	if d := r.ended[0]; d.Skipped != 1 || !d.At.Equal(*s.Next) {
		t.Errorf("ended %+v", d)
	}
}

// TestDueIsNotLost: a run that is due while chatd-root takes no call begins when it takes one
// again.
func TestDueIsNotLost(t *testing.T) {
	r, h := &fake{}, noon()
	c := opened(t, r, h)
	s, err := c.AddSchedule(t.Context(), "a", chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"})
	must.Do(t, err)
	r.losing = 12
	c.Begin()
	defer c.Close()
	h.move(time.Minute)
	r.await(t, "begin")
	d := r.begun[0]
	expect.True(t, d.At.Equal(*s.Next) && d.Refused == nil, "begun %+v", d)
	close(r.finish)
	r.await(t, "end")
}

// TestCloseLeavesARun: a run in progress when the clock ends is not recorded as ended, and the next
// clock waits for it.
func TestCloseLeavesARun(t *testing.T) {
	r, h := &fake{}, noon()
	c := opened(t, r, h)
	c.Begin()
	if _, err := c.AddSchedule(t.Context(), "a", chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"}); err != nil {
		t.Fatal(err)
	}
	h.move(time.Minute)
	r.await(t, "begin")
	c.Close()
	expect.True(t, len(r.ended) <= 0, "ended %+v", r.ended)
	r.kept[0].StillRunning, r.kept[0].Due = true, h.Now()
	c = opened(t, r, h)
	c.Begin()
	defer c.Close()
	r.await(t, "begin")
	close(r.finish)
	r.await(t, "end")
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.begun[1]
	expect.True(t, d.GoesOn && d.At.Equal(r.kept[0].Due), "waited for %+v", d)
}

// TestRefused: what cannot come due is never put below.
func TestRefused(t *testing.T) {
	r := &fake{}
	c := opened(t, r, noon())
	for spec, want := range map[string]string{"2026-11-21T11:59": "want a time to come", "soon": "at"} {
		_, err := c.AddSchedule(t.Context(), "a", chat.ScheduleSpec{At: spec, Command: "true"})
		expect.True(t, errors.Is(err, chat.ErrInvalid) && strings.Contains(err.Error(), want),
			"%s: %v", spec, err)
	}
	expect.True(t, len(r.kept) <= 0, "kept %+v", r.kept)
}

// TestReapedIsForgotten: the schedules of a chat that was reaped come due no more.
func TestReapedIsForgotten(t *testing.T) {
	r, h := &fake{Memory: apitest.New()}, noon()
	c := opened(t, r, h)
	made, _, err := r.Create(chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator}), chat.Spec{ExternalID: "x"})
	must.Do(t, err)
	ctx := chat.WithCaller(t.Context(), chat.Caller{Role: chat.RoleOperator})
	if _, err := c.AddSchedule(ctx, made.ID, chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"}); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := c.runner.Look(made.ID, "s"); !ok {
		t.Error("it is not there before")
	}
	must.Do(t, c.Reap(ctx, made.ID))
	if _, _, ok := c.runner.Look(made.ID, "s"); ok {
		t.Error("it comes due after the chat was reaped")
	}
}

// heeding answers no caller that has gone.
type heeding struct{ *apitest.Memory }

func (h heeding) Schedules(ctx context.Context, id chat.ID) (chat.Schedules, error) {
	if ctx.Err() != nil {
		return chat.Schedules{}, ctx.Err()
	}
	return h.Memory.Schedules(ctx, id)
}

// scheduled is a chat with a schedule that Memory keeps.
func scheduled(t *testing.T) (*Chats, context.Context, chat.ID) {
	t.Helper()
	mem := apitest.New()
	h := noon()
	c, err := Open(t.Context(), heeding{mem}, Options{Clock: schedule.Clock{Now: h.Now, After: h.After}})
	must.Do(t, err)
	ctx := chat.WithCaller(t.Context(), chat.Caller{Name: "root", Role: chat.RoleOperator})
	made := must.First(c.Create(ctx, chat.Spec{ExternalID: "x"}))(t)
	spec := chat.ScheduleSpec{Every: chat.MinEvery, Command: "true"}
	must.Do(t, expect.Err(c.AddSchedule(ctx, made.ID, spec)))
	return c, ctx, made.ID
}

// TestArchivedIsForgotten: the schedules of a chat that was archived come due no more, unless it is
// kept, and again once it is unarchived.
func TestArchivedIsForgotten(t *testing.T) {
	c, ctx, id := scheduled(t)
	due := func() bool {
		_, _, ok := c.runner.Look(id, "s1")
		return ok
	}
	if _, err := c.Archive(ctx, id, chat.ToArchive{Keep: true}); err != nil || !due() {
		t.Errorf("kept: due %v, %v", due(), err)
	}
	a, err := c.Archive(ctx, id, chat.ToArchive{})
	if err != nil || due() {
		t.Errorf("archived: due %v, %v", due(), err)
	}
	// A caller that goes just before the answer leaves no chat whose schedules never come due.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Unarchive(gone, a.Name); err != nil || !due() {
		t.Errorf("unarchived: due %v, %v", due(), err)
	}
	if _, err := c.Unarchive(ctx, a.Name); !errors.Is(err, chat.ErrExists) || !due() {
		t.Errorf("again: due %v, %v", due(), err)
	}
}
