package sockets

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// reports is what a watch asked to end, with the reasons.
type reports map[chat.ID]string

func (r reports) watch() *watch {
	return &watch{
		Options:  Options{End: func(s Session, why string) { r[s.Chat] = why }},
		unlisted: 1 << 20,
	}
}

// TestCheck: a session that holds more than half of memory_max is ended, with the reason; one that
// holds more than a quarter of that is near it.
func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		memory, holds uint64
		unlisted      int
		near          bool
		why           string
	}{
		"little":        {256 << 20, 32 << 20, 0, false, ""},
		"near":          {256 << 20, 33 << 20, 0, true, ""},
		"its share":     {256 << 20, 128 << 20, 0, true, ""},
		"more":          {256 << 20, 130 << 20, 0, true, "were 5: more than its share of 128 MiB"},
		"with unlisted": {256 << 20, 127 << 20, 2, true, "up to 129 MiB for its sockets"},
		"being reaped":  {0, 17 << 20, 0, true, "its share of 16 MiB"},
		"small":         {1 << 20, 15 << 20, 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ended := reports{}
			s := Session{Chat: "a", MemoryMax: test.memory}
			near := ended.watch().check(s, usage{Sockets: 5, Bytes: test.holds}, test.unlisted)
			why := ended["a"]
			right := (why == "") == (test.why == "") && strings.Contains(why, test.why)
			expect.True(t, near == test.near && right,
				"near %t, ended for %q, want %t, %q", near, why, test.near, test.why)
		})
	}
}

// TestDue: a network is listed when it has grown, when some session is near its share, and now and
// then.
func TestDue(t *testing.T) {
	stat := must.Get(os.Create(t.TempDir() + "/sockstat"))(t)
	defer stat.Close()
	n := &network{room: &room{stat: stat}}
	for i, step := range []struct {
		sockets, pages, round int
		near, want            bool
	}{
		{fewSockets, grownPages + 1, 1, true, false},
		{fewSockets + 1, 0, 2, false, true},
		{fewSockets + 1, 0, 3, false, false},
		{fewSockets + 1, 0, 3, true, true},
		{fewSockets + 1, 0, unchanged, false, true},
		{2*fewSockets + 1, 0, 21, false, true},
		{2*fewSockets + 1, grownPages, 22, false, false},
		{2*fewSockets + 1, grownPages + 1, 23, false, true},
		{2*fewSockets + 1, 0, 24, false, false},
		{2*fewSockets + 1, grownPages + 1, 25, false, true}, // the least since the last list counts
	} {
		text := fmt.Sprintf("sockets: used %6d\nTCP: inuse 1 mem %6d\n", step.sockets, step.pages)
		must.Get(stat.WriteAt([]byte(text), 0))(t)
		n.near = step.near
		if got, err := (&watch{round: step.round}).due(n); got != step.want || err != nil {
			t.Errorf("step %d: %t, %v, want %t", i, got, err, step.want)
		}
	}
}

// TestManyLocks ends the session whose uid has more record locks than maxLocks, and no other.
func TestManyLocks(t *testing.T) {
	f := must.Get(os.Create(t.TempDir() + "/lock"))(t)
	defer f.Close()
	// Not side by side: the kernel would make them one. A few more: it may leave some out of a list
	// that changes while it is read in parts.
	for i := range maxLocks + 500 {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(2 * i), Len: 1}
		must.Do(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock))
	}
	ended, own := reports{}, uint32(os.Getuid())
	all := []Session{{Chat: "own", UID: own}, {Chat: "other", UID: own + 1}}
	err := ended.watch().lookAtLocks(all)
	expect.True(t, err == nil && len(ended) == 1 && strings.Contains(ended["own"], "10000 record locks"),
		"ended %v: %v", ended, err)
}
