package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const someone = chat.ID("0123456789abcdef")

// some is the n-th run of a chat.
func some(n int, background bool, outputMax int64) About {
	return About{Chat: someone, Owner: "a", Info: chat.Run{
		ID: fmt.Sprintf("run-%03d", n), Background: background, OutputMax: outputMax,
		StartedAt: time.Unix(int64(n), 0),
	}}
}

func unbounded(uint64, uint64) error { return nil }

func admit(t *testing.T, a *Runs, about About) *Run {
	t.Helper()
	r := must.Get(a.Admit(about, unbounded))(t)
	return r
}

// TestAdmit: a chat has a bound on its runs and on the output that they may keep; an owner has one
// on kept output. An ended run counts with the output that it keeps.
func TestAdmit(t *testing.T) {
	a := New(Options{})
	for n := range chat.MaxRuns {
		admit(t, a, some(n, false, 0))
	}
	expect.Is(t, expect.Err(a.Admit(some(999, false, 0), unbounded)), chat.ErrBusy,
		"one run more than there may be")
	a.Forget(a.Of(someone)[0])
	if n := len(a.Of(someone)); n != chat.MaxRuns-1 {
		t.Errorf("%d runs after one was forgotten", n)
	}
	_, err := a.Admit(some(999, true, chat.MaxRunsOutput), unbounded)
	expect.True(t, errors.Is(err, chat.ErrBusy), "more output than there may be: %v", err)
	spent := errors.New("spent")
	_, err = a.Admit(some(999, true, 100), func(used, want uint64) error {
		expect.True(t, used == 0 && want == 200, "used %d, wants %d", used, want)
		return spent
	})
	expect.True(t, errors.Is(err, spent), "the owner's share is spent: %v", err)
	r := admit(t, a, some(999, true, 100))
	if kept := a.Kept()["a"]; kept != 200 {
		t.Errorf("a run that goes on keeps %d bytes, want 200", kept)
	}
	r.finish(&End{Result: chat.RunResult{StdoutBytes: 30, StderrBytes: 1000}})
	if kept := a.Kept()["a"]; kept != 130 {
		t.Errorf("a run that has ended keeps %d bytes, want 130", kept)
	}
}

// TestFind: a run is that of its chat alone.
func TestFind(t *testing.T) {
	a := New(Options{})
	r := admit(t, a, some(1, true, 100))
	if got, err := a.Find(someone, r.Info.ID); got != r || err != nil || !a.AnyUnderWay(someone) {
		t.Errorf("%v, %v", got, err)
	}
	const other = chat.ID("fedcba9876543210")
	_, err := a.Find(other, r.Info.ID)
	expect.True(t, errors.Is(err, chat.ErrNotFound) && !a.AnyUnderWay(other), "of another chat: %v", err)
}

// TestWhatEndsARun: the first reason stays, and no reason is accepted after the end. The end of
// chatd ends no background run.
func TestWhatEndsARun(t *testing.T) {
	a := New(Options{})
	front, back := admit(t, a, some(1, false, 0)), admit(t, a, some(2, true, 100))
	within, cancel := front.Within(t.Context())
	defer cancel()
	if n := a.EndForeground(); n != 1 || back.ctx.Err() != nil {
		t.Errorf("%d ended, and of the background: %v", n, back.ctx.Err())
	}
	<-within.Done()
	a.SetEndReason(someone, chat.EndedBySleep)
	expect.True(t, front.EndedBy() == chat.EndedByStop && back.EndedBy() == chat.EndedBySleep,
		"ended by %s and %s", front.EndedBy(), back.EndedBy())
	gone, leave := context.WithCancel(t.Context())
	leave()
	expect.Is(t, back.End(gone, chat.EndedByRequest), context.Canceled, "the caller of an end went away")
	back.finish(&End{State: chat.RunLost})
	err := back.End(t.Context(), chat.EndedByRequest)
	if by := back.EndedBy(); err != nil || by != chat.EndedBySleep {
		t.Errorf("the end of what has ended: %v, by %s", err, by)
	}
	expect.Is(t, expect.Err(back.Ended()), chat.ErrWrongPhase, "the end of a run that is lost")
	a.Forget(front)
	a.SetEndReason(someone, chat.EndedByReap)
	expect.True(t, front.EndedBy() == chat.EndedByStop, "ended by %s after it was over", front.EndedBy())
}

// TestSurplus: the oldest ended runs go first. The newest stays, however large, and runs under way.
func TestSurplus(t *testing.T) {
	const half = chat.MaxRetainedOutput / 2
	for _, c := range []struct {
		printed []int64
		want    string
	}{
		{[]int64{half, half}, "[]"},
		{[]int64{1, half, half + 1}, "[run-001 run-000]"},
		{[]int64{1, 2*half + 1}, "[run-000]"},
	} {
		a := New(Options{Dir: t.TempDir()})
		for n, printed := range c.printed {
			r := admit(t, a, some(n, true, 2*half+1))
			r.finish(&End{Result: chat.RunResult{StdoutBytes: printed}})
		}
		admit(t, a, some(99, true, chat.MaxOutputMax))
		ids := []string{}
		for _, r := range a.Surplus(someone) {
			ids = append(ids, r.Info.ID)
			expect.NoError(t, a.Drop(r))
		}
		left := len(a.Of(someone))
		expect.True(t, fmt.Sprint(ids) == c.want && left == len(c.printed)+1-len(ids),
			"printed %v: surplus are %v, %d are left", c.printed, ids, left)
	}
}

func write(text string) func(context.Context, stream.Input) error {
	return func(_ context.Context, in stream.Input) error {
		_, err := in.W.WriteString(text)
		return errors.Join(err, in.W.Close())
	}
}

// TestStdinOfAForegroundRun: each writer opens its standard input anew, one writer at a time, and
// the last one closes it.
func TestStdinOfAForegroundRun(t *testing.T) {
	r := admit(t, New(Options{}), some(1, false, 0))
	expect.Is(t, r.WriteStdin(t.Context(), false, write("x")), chat.ErrWrongPhase, "no standard input")
	in, w, err := os.Pipe()
	must.Do(t, err)
	defer in.Close()
	r.Began(1, w)
	unlock := must.Get(r.LockStdin())(t)
	expect.Is(t, expect.Err(r.LockStdin()), chat.ErrBusy, "two writers")
	unlock()
	for _, last := range []bool{false, true} {
		if err := r.WriteStdin(t.Context(), last, write("x")); err != nil {
			t.Errorf("last %t: %v", last, err)
		}
	}
	var b [8]byte
	if n, err := in.Read(b[:]); string(b[:n]) != "xx" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	if n, err := in.Read(b[:]); n != 0 || err == nil {
		t.Errorf("after the last: %d bytes, %v", n, err)
	}
	expect.Is(t, r.WriteStdin(t.Context(), false, write("x")), chat.ErrWrongPhase, "after the last")
}

// TestDenied: a refusal of the chat is of all its runs under way, once, and a run has a bounded
// number of them. A run of another chat, or one that has ended, has none.
func TestDenied(t *testing.T) {
	a := New(Options{})
	under, over := admit(t, a, some(1, false, 0)), admit(t, a, some(2, true, 1))
	over.finish(&End{})
	about := some(3, false, 0)
	about.Chat = "fedcba9876543210"
	other := admit(t, a, about)
	for n := range 2 * chat.MaxDenied {
		for range 2 {
			a.Denied(someone, chat.Denied{Op: "connect", Host: "x", Port: uint16(n + 1)})
		}
	}
	all := under.Denied()
	if len(all) != chat.MaxDenied || all[0].Port != 1 || all[1].Port != 2 || len(over.Denied())+len(other.Denied()) > 0 {
		t.Errorf("%+v, ended: %+v, another's: %+v", all, over.Denied(), other.Denied())
	}
}
