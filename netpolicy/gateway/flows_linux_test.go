package gateway

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestFlows: of 1,000 connections a chat gets half, an owner three quarters, and others get some;
// after two minutes all get them again.
func TestFlows(t *testing.T) {
	now := time.Now()
	f := newFlows(1000, func() time.Time { return now })
	most := func(id, owner string) (n int) {
		for ; ; n++ {
			err := f.take(chat.ID(id), owner)
			if err != nil {
				must.True(t, errors.Is(err, chat.ErrBusy), "%v", err)
				return n
			}
		}
	}
	for _, step := range []struct {
		after     time.Duration
		id, owner string
		want      int
	}{
		{0, "a", "bob", 500}, {0, "a", "bob", 0}, {0, "b", "bob", 250}, {0, "c", "bob", 0},
		{0, "d", "eve", 125}, {100 * time.Second, "a", "bob", 0}, {0, "e", "ann", 63},
		{10 * time.Second, "a", "bob", 0}, {20 * time.Second, "a", "bob", 469},
		{time.Hour, "d", "eve", 500},
	} {
		now = now.Add(step.after)
		expect.Equal(t, most(step.id, step.owner), step.want,
			"after %v %s of %s gets", step.after, step.id, step.owner)
	}
	now = now.Add(time.Hour)
	for i := range 3000 {
		now = now.Add(time.Second)
		must.Do(t, f.take(chat.ID(fmt.Sprint(i)), fmt.Sprint(i)))
		if n := len(f.of); n > 2*130 {
			t.Fatalf("%d counts are kept", n)
		}
	}
}
