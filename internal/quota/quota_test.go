package quota

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// Every share says what is refused, to whom, by which key, and what frees it.
func TestSpent(t *testing.T) {
	l := Limits{}
	for _, s := range All() {
		if err := l.Check(s, "ada", 1<<40, 1); err != nil {
			t.Errorf("%s without a limit: %v", s, err)
		}
		l[s] = 10
		if err := l.Check(s, "ada", 8, 2); err != nil {
			t.Errorf("%s: the last two are refused: %v", s, err)
		}
		err := l.Check(s, "ada", 9, 2)
		var spent *SpentError
		must.True(t, errors.Is(err, chat.ErrBusy) && errors.As(err, &spent), "%s: %v", s, err)
		w := words[s]
		for _, part := range []string{"cannot " + w.refused, `owner "ada" has 9 of at most 10`, w.counted, "owner_shares." + string(s), w.frees} {
			expect.True(t, w.refused != "" && strings.Contains(err.Error(), part),
				"%s: %q does not say %q", s, err, part)
		}
	}
	if text := (&SpentError{Share: Awake, Owner: "ada", Why: "3 at work"}).Error(); !strings.HasSuffix(text, "put one to sleep (3 at work)") {
		t.Errorf("spent on work: %s", text)
	}
	if text := (&SpentError{Share: Creates, Owner: "ada", After: 1100 * time.Millisecond}).Error(); !strings.HasSuffix(text, "try again in 2 s") {
		t.Error(text)
	}
}

// A holder takes nothing from another, and a second giveBack has no effect.
func TestCounter(t *testing.T) {
	c := NewCounter(1)
	back, ok := c.Take("ada")
	if _, again := c.Take("ada"); !ok || again {
		t.Errorf("the first %t, the second %t", ok, again)
	}
	if _, ok := c.Take("bob"); !ok {
		t.Error("bob has none")
	}
	back()
	back()
	if held := c.InUse(); len(held) != 1 || held["bob"] != 1 {
		t.Errorf("held: %v", held)
	}
	if _, ok := c.Take("ada"); !ok {
		t.Error("it is not given back")
	}
}

// A bucket can be spent immediately, fills evenly, and belongs to one holder. A clock that is set
// back neither fills it nor blocks its holder.
func TestRate(t *testing.T) {
	now := time.Unix(1000, 0)
	r := NewRate(60, func() time.Time { return now })
	for i := range 60 {
		if _, ok := r.Take("ada"); !ok {
			t.Fatalf("%d of 60 is refused", i)
		}
	}
	after, ok := r.Take("ada")
	expect.True(t, !ok && after == time.Second, "the 61st: %t, after %s", ok, after)
	if _, ok := r.Take("bob"); !ok {
		t.Error("bob is refused")
	}
	now = now.Add(-time.Hour)
	if after, ok := r.Take("ada"); ok || after != time.Second {
		t.Errorf("after the clock was set back: %t, after %s", ok, after)
	}
	now = now.Add(after)
	if _, ok := r.Take("ada"); !ok {
		t.Error("refused after the time that was named")
	}
	if used := r.Used(); used["ada"] != 60 || used["bob"] != 1 {
		t.Errorf("used: %v", used)
	}
	now = now.Add(2 * time.Hour)
	if _, ok := r.Take("bob"); !ok || len(r.buckets) != 1 {
		t.Errorf("who used none lately is remembered: %v", r.buckets)
	}
}
