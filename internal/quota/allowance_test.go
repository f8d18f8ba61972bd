package quota

import (
	"context"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
)

// An allowance gives its burst, then one for each interval, and never more than the burst.
func TestAllowance(t *testing.T) {
	now := time.Unix(1000, 0)
	a := NewAllowance(3, time.Minute, func() time.Time { return now })
	for i, step := range []struct {
		after time.Duration
		want  int
	}{
		{0, 3}, {59 * time.Second, 0}, {time.Second, 1}, {150 * time.Second, 2}, {30 * time.Second, 1}, {24 * time.Hour, 3},
	} {
		now = now.Add(step.after)
		if a.Full() != (step.want == 3) {
			t.Errorf("step %d: full is %t", i, a.Full())
		}
		got := 0
		for a.Take() {
			got++
		}
		expect.True(t, got == step.want, "step %d: %d are given, want %d", i, got, step.want)
	}
}

// Wait takes what is there, ends with its context, and waits for what grows.
func TestAllowanceWaits(t *testing.T) {
	a := NewAllowance(1, time.Hour, time.Now)
	expect.True(t, a.Wait(t.Context()), "the first is not given")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	expect.True(t, !a.Wait(ctx), "one is given after the end")
	soon := NewAllowance(1, time.Millisecond, time.Now)
	for range 3 {
		expect.True(t, soon.Wait(t.Context()), "what grows is not given")
	}
}
