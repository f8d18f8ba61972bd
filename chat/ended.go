package chat

import "fmt"

// EndedBy is what ended a run before its command did by itself.
type EndedBy string

// What can end a run.
const (
	// EndedByMemory: the kernel ended processes of it, for the chat reached memory_max.
	EndedByMemory EndedBy = "memory"
	// EndedByTimeout: its time was over.
	EndedByTimeout EndedBy = "timeout"
	// EndedByRequest: a caller asked for its end.
	EndedByRequest EndedBy = "request"
	// EndedBySleep and EndedByReap: the chat was put to sleep, or reaped.
	EndedBySleep EndedBy = "sleep"
	EndedByReap  EndedBy = "reap"
	// EndedBySession: the chat's session ended, and everything in it.
	EndedBySession EndedBy = "session"
	// EndedByStop: chatd stopped. A background run goes on.
	EndedByStop EndedBy = "stop"
)

// endedWords are what people read. Memory and the timeout have figures.
var endedWords = map[EndedBy]string{
	EndedByRequest: "the run was ended on request",
	EndedBySleep:   "the run was ended because the chat was put to sleep",
	EndedByReap:    "the run was ended because the chat was reaped",
	EndedBySession: "the run was ended because the chat's session ended",
	EndedByStop:    "the run was ended because chatd stopped; a background run would have gone on",
}

// LimitHits counts what limits did: processes that the kernel ended for memory_max, and new
// processes that it refused for pids_max.
type LimitHits struct{ OOMKills, PidsRefused uint64 }

// Since is what was counted after before. Counters may begin anew with a session.
func (h LimitHits) Since(before LimitHits) LimitHits {
	diff := func(now, was uint64) uint64 { return now - min(now, was) }
	return LimitHits{diff(h.OOMKills, before.OOMKills), diff(h.PidsRefused, before.PidsRefused)}
}

// Words says which limit did what, to what: one sentence for each limit that was hit.
func (h LimitHits) Words(of string, l Limits) []string {
	var words []string
	if h.OOMKills > 0 {
		words = append(words, fmt.Sprintf("out of memory: the kernel ended %s of %s, because the chat may use %s (memory_max)",
			plural(h.OOMKills, "process"), of, bytesWord(l.MemoryMax)))
	}
	if h.PidsRefused > 0 {
		words = append(words, fmt.Sprintf("too many processes: %s refused, because the chat may have %d processes and threads (pids_max)",
			plural(h.PidsRefused, "fork"), l.PidsMax))
	}
	return words
}

// Explain says in EndedBy and Why what ended the run, and which limits it met. by is what is
// known to have ended it; empty is nothing but perhaps a limit.
func (r *RunResult) Explain(by EndedBy, timeout Duration, h LimitHits, l Limits) {
	r.OOMKilled, r.PidsRefused = h.OOMKills > 0, h.PidsRefused
	switch {
	case r.TimedOut:
		by = EndedByTimeout
	case by == "" && r.OOMKilled && (r.Signal != "" || r.Exit != 0):
		by = EndedByMemory
	}
	r.EndedBy, r.Why = by, h.Words("the run", l)
	if by == EndedByTimeout {
		r.Why = append(r.Why, fmt.Sprintf("the run was ended by its timeout, %s", timeout))
	} else if w := endedWords[by]; w != "" {
		r.Why = append(r.Why, w)
	}
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if what == "process" {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// bytesWord is a number of bytes in the largest binary unit that leaves it whole.
func bytesWord(n uint64) string {
	unit := 0
	for n > 0 && n%1024 == 0 && unit < 4 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%d%s", n, [...]string{" bytes", "KiB", "MiB", "GiB", "TiB"}[unit])
}
