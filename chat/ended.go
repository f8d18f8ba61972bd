package chat

import (
	"fmt"
	"slices"
)

// EndedBy is the cause that ended a run before its command exited by itself.
type EndedBy string

// The causes that end a run.
const (
	// EndedByMemory: the kernel killed processes of the run because the chat reached memory_max.
	EndedByMemory EndedBy = "memory"
	// EndedByTimeout: the run reached its timeout.
	EndedByTimeout EndedBy = "timeout"
	// EndedByRequest: a caller ended the run.
	EndedByRequest EndedBy = "request"
	// EndedBySleep and EndedByReap: the chat was put to sleep, or reaped.
	EndedBySleep EndedBy = "sleep"
	EndedByReap  EndedBy = "reap"
	// EndedBySession: the chat's session ended, with every process in it.
	EndedBySession EndedBy = "session"
	// EndedByStop: chatd stopped. Background runs are not ended by this.
	EndedByStop EndedBy = "stop"
)

// endedWords are the sentences for people. Those for memory and the timeout have figures, and are
// made in [RunResult.Explain].
var endedWords = map[EndedBy]string{
	EndedByRequest: "the run was ended on request",
	EndedBySleep:   "the run was ended because the chat was put to sleep",
	EndedByReap:    "the run was ended because the chat was reaped",
	EndedBySession: "the run was ended because the chat's session ended",
	EndedByStop:    "the run was ended because chatd stopped; a background run would have gone on",
}

// LimitHits counts processes that the kernel killed for memory_max, and new processes that it
// refused for pids_max.
type LimitHits struct{ OOMKills, PidsRefused uint64 }

// Since is h without the hits counted in before. Counters may restart from zero with a session.
func (h LimitHits) Since(before LimitHits) LimitHits {
	diff := func(now, was uint64) uint64 { return now - min(now, was) }
	return LimitHits{diff(h.OOMKills, before.OOMKills), diff(h.PidsRefused, before.PidsRefused)}
}

// Words has one sentence for each limit that was hit. of names its object.
func (h LimitHits) Words(of string, l Limits) []string {
	var words []string
	if h.OOMKills > 0 {
		words = append(words,
			fmt.Sprintf("out of memory: the kernel ended %s of %s, because the chat may use %s (memory_max)",
				plural(h.OOMKills, "process"), of, bytesWord(l.MemoryMax)))
	}
	if h.PidsRefused > 0 {
		words = append(words,
			fmt.Sprintf("too many processes: %s refused, because the chat may have %d processes and threads (pids_max)",
				plural(h.PidsRefused, "fork"), l.PidsMax))
	}
	return words
}

// Explain sets EndedBy and Why from the cause of the end and the limits that were hit. by is the
// known cause; empty leaves only a limit as a possible cause.
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

// EndedLeft says in Why that processes were ended which the command left running in the background.
func (r *RunResult) EndedLeft(n int) {
	if n > 0 && r.EndedBy == "" {
		r.Why = append(r.Why, plural(uint64(n), "process")+
			" that the command left running ended with it: start a server as a background run")
	}
}

// DiskWords says how full the disk of a chat is.
func DiskWords(u DiskUsage, l DiskLimits) string {
	return fmt.Sprintf("the chat has %s in %d files on disk, and may have %s in %d "+
		"(disk_max, inodes_max): %d %%", roundBytes(u.Bytes), u.Inodes, bytesWord(l.DiskMax),
		l.InodesMax, u.Percent)
}

// roundBytes is a number of bytes in the largest binary unit of which there is one.
func roundBytes(n uint64) string {
	unit, rest, digits := 0, float64(n), 0
	for rest >= 1024 && unit < 4 {
		rest, unit, digits = rest/1024, unit+1, 1
	}
	return fmt.Sprintf("%.*f%s", digits, rest, byteUnits[unit])
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

// bytesWord is a number of bytes in the largest binary unit that keeps it an integer.
func bytesWord(n uint64) string {
	unit := 0
	for n > 0 && n%1024 == 0 && unit < 4 {
		n, unit = n/1024, unit+1
	}
	return fmt.Sprintf("%d%s", n, byteUnits[unit])
}

var byteUnits = [...]string{" bytes", "KiB", "MiB", "GiB", "TiB"}

// MaxDenied bounds the refusals that the answer of a run has.
const MaxDenied = 16

// Denied is what the chat was refused while a run was under way: by its file rules, where the
// kernel reports it, or by its egress. Equal ones are one.
type Denied struct {
	// Op is open or connect.
	Op   string `json:"op" enum:"open,connect" doc:"What was refused."`
	Path string `json:"path,omitempty" doc:"The file; none if the rules keep it to operators."`
	Rule string `json:"rule,omitempty" doc:"The rule that denies it."`
	Host string `json:"host,omitempty" doc:"The name or address."`
	Port uint16 `json:"port,omitempty" doc:"Its port; none for a question for a name."`
}

// String is the refusal in one line.
func (d Denied) String() string {
	switch {
	case d.Op == "connect" && d.Port == 0:
		return "denied: egress refused " + QuotePath(d.Host)
	case d.Op == "connect":
		return fmt.Sprintf("denied: egress refused %s port %d", QuotePath(d.Host), d.Port)
	case d.Path == "":
		return "denied: a file, by policy"
	}
	return fmt.Sprintf("denied: %s %s by %s", d.Op, QuotePath(d.Path), QuotePath(d.Rule))
}

// Reasons are the sentences of Why, and a line for each of Denied.
func (r RunResult) Reasons() []string {
	all := slices.Clip(r.Why)
	for _, d := range r.Denied {
		all = append(all, d.String())
	}
	return all
}
