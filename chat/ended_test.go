package chat

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestExplain: the cause that ended a run, and the limit that it reached, are stated once, with the
// figure.
func TestExplain(t *testing.T) {
	for name, c := range map[string]struct {
		res  RunResult
		by   EndedBy
		hits LimitHits
		want EndedBy
		why  []string
	}{
		"by itself":               {res: RunResult{Exit: 1}},
		"a signal of its own":     {res: RunResult{Exit: -1, Signal: "SIGKILL"}},
		"a child out of memory":   {res: RunResult{Exit: 1}, hits: LimitHits{OOMKills: 2}, want: EndedByMemory, why: []string{"2 processes", "256MiB (memory_max)"}},
		"memory, and it went on":  {hits: LimitHits{OOMKills: 1}, why: []string{"1 process of the run"}},
		"refused":                 {res: RunResult{Exit: 254}, hits: LimitHits{PidsRefused: 7}, why: []string{"7 forks refused", "200 processes", "pids_max"}},
		"its time":                {res: RunResult{Exit: -1, Signal: "SIGTERM", TimedOut: true}, by: EndedBySleep, want: EndedByTimeout, why: []string{"its timeout, 5s"}},
		"sleep":                   {res: RunResult{Exit: -1, Signal: "SIGKILL"}, by: EndedBySleep, want: EndedBySleep, why: []string{"put to sleep"}},
		"reap, and out of memory": {res: RunResult{Exit: -1, Signal: "SIGKILL"}, by: EndedByReap, hits: LimitHits{OOMKills: 1}, want: EndedByReap, why: []string{"memory_max", "reaped"}},
	} {
		r := c.res
		r.Explain(c.by, Duration(5*time.Second), c.hits, DefaultLimits())
		all := strings.Join(r.Why, "\n")
		missing := slices.DeleteFunc(c.why, func(w string) bool { return strings.Contains(all, w) })
		if r.EndedBy != c.want || len(missing) > 0 || len(c.why) == 0 && len(r.Why) > 0 {
			t.Errorf("%s: ended by %q, why %q", name, r.EndedBy, r.Why)
		}
		if r.OOMKilled != (c.hits.OOMKills > 0) || r.PidsRefused != c.hits.PidsRefused {
			t.Errorf("%s: %+v", name, r)
		}
	}
	for by := range endedWords {
		var r RunResult
		if r.Explain(by, 0, LimitHits{}, DefaultLimits()); len(r.Why) != 1 || r.EndedBy != by {
			t.Errorf("%s: %+v", by, r)
		}
	}
}
