package cgroup

import (
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestHitMeter: each call returns what is new, and a report comes at most once a minute with all
// that came since the last one.
func TestHitMeter(t *testing.T) {
	var meter HitMeter
	meter.Begin(chat.LimitHits{OOMKills: 2, PidsRefused: 7})
	start := time.Unix(1_000_000, 0)
	for i, step := range []struct {
		after                   time.Duration
		counters, since, report chat.LimitHits
	}{
		{0, chat.LimitHits{OOMKills: 2, PidsRefused: 7}, chat.LimitHits{}, chat.LimitHits{}},
		{2 * time.Second, chat.LimitHits{OOMKills: 3, PidsRefused: 7},
			chat.LimitHits{OOMKills: 1}, chat.LimitHits{OOMKills: 1}},
		{4 * time.Second, chat.LimitHits{OOMKills: 4, PidsRefused: 7},
			chat.LimitHits{OOMKills: 1}, chat.LimitHits{}},
		{61 * time.Second, chat.LimitHits{OOMKills: 4, PidsRefused: 9},
			chat.LimitHits{PidsRefused: 2}, chat.LimitHits{}},
		{62 * time.Second, chat.LimitHits{OOMKills: 4, PidsRefused: 9},
			chat.LimitHits{}, chat.LimitHits{OOMKills: 1, PidsRefused: 2}},
		{time.Hour, chat.LimitHits{OOMKills: 4, PidsRefused: 9}, chat.LimitHits{}, chat.LimitHits{}},
		{2 * time.Hour, chat.LimitHits{OOMKills: 0, PidsRefused: 1}, // the counters restarted
			chat.LimitHits{}, chat.LimitHits{}},
		{3 * time.Hour, chat.LimitHits{OOMKills: 1, PidsRefused: 1},
			chat.LimitHits{OOMKills: 1}, chat.LimitHits{OOMKills: 1}},
	} {
		since, report := meter.Take(step.counters, start.Add(step.after))
		expect.True(t, since == step.since && report == step.report,
			"step %d: %+v, report %+v, want %+v, report %+v", i, since, report, step.since, step.report)
	}
}
