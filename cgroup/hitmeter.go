package cgroup

import (
	"time"

	"github.com/chatd/chatd/chat"
)

// hitReport is the least interval between two reports of one session's hits.
const hitReport = time.Minute

// HitMeter tells the new hits of one session's limits from the old ones. The zero value has seen
// none. It is for one goroutine at a time.
type HitMeter struct {
	seen, unreported chat.LimitHits
	reported         time.Time
}

// Begin sets the counters from which hits count.
func (h *HitMeter) Begin(counters chat.LimitHits) { h.seen = counters }

// Take returns the hits since the last call, by the counters at a time, and the hits to report:
// all that no call returned yet, or none within a minute of the last report.
func (h *HitMeter) Take(counters chat.LimitHits, at time.Time) (since, report chat.LimitHits) {
	since, h.seen = counters.Since(h.seen), counters
	h.unreported.OOMKills += since.OOMKills
	h.unreported.PidsRefused += since.PidsRefused
	if h.unreported != (chat.LimitHits{}) && at.Sub(h.reported) >= hitReport {
		report, h.unreported, h.reported = h.unreported, chat.LimitHits{}, at
	}
	return since, report
}
