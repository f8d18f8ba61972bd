package provision

import (
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/archives"
	"github.com/chatd/chatd/provision/idle"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
)

// TestOverdue: no archive is removed at the first look that finds it expired, for the clock may have
// been set wrongly, but at one a while later.
func TestOverdue(t *testing.T) {
	now := time.Now()
	expires := func(name chat.ArchiveName, in time.Duration) (a archives.Manifest) {
		at := now.Add(in)
		a.Name, a.ArchivedAt, a.ExpiresAt = name, at.Add(-30*24*time.Hour), &at
		return a
	}
	past, later, ever := expires("past", -time.Hour), expires("later", time.Hour), archives.Manifest{}
	all, old := []archives.Manifest{past, later, ever}, idle.Lasting[chat.ArchiveName]{}
	for i, look := range []struct {
		all  []archives.Manifest
		at   time.Duration
		want int
	}{
		{all, 0, 0},
		{all, 59 * time.Minute, 0},
		{[]archives.Manifest{later, ever}, 60 * time.Minute, 0}, // the clock was set right
		{all, 61 * time.Minute, 0},                              // both have expired now
		{all, 3 * time.Hour, 2},
	} {
		due := overdue(look.all, old, now.Add(look.at))
		expect.True(t, len(due) == look.want, "look %d: %d are overdue, want %d", i, len(due), look.want)
	}
}

// TestLatest: what records have of time is over, also where the clock says otherwise.
func TestLatest(t *testing.T) {
	now := time.Now()
	all := []state.Record{{CreatedAt: now, UsedAt: now.Add(-time.Hour)}, {UsedAt: now.Add(time.Hour)}, {}}
	at := latest(all)
	expect.True(t, at.Equal(now.Add(time.Hour)), "it is %s", at)
	if at := latest(nil); !at.IsZero() {
		t.Errorf("without records it is %s", at)
	}
}
