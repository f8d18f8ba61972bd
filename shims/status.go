package shims

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// Status is what the kernel says of a process in /proc/PID/status
// (proc_pid_status(5)).
type Status struct {
	// UIDs and GIDs are real, effective, saved and file system ids.
	UIDs   []int `json:"uids"`
	GIDs   []int `json:"gids"`
	Groups []int `json:"groups"`
	// NSPids are its pids, from the namespace of that /proc inwards.
	NSPids     []int `json:"ns_pids"`
	NoNewPrivs bool  `json:"no_new_privs"`
	// Seccomp is 0 for none and 2 for a filter.
	Seccomp int    `json:"seccomp"`
	CapInh  uint64 `json:"cap_inh"`
	CapPrm  uint64 `json:"cap_prm"`
	CapEff  uint64 `json:"cap_eff"`
	CapBnd  uint64 `json:"cap_bnd"`
	CapAmb  uint64 `json:"cap_amb"`
}

// Report is what a confined process says of itself just before it becomes the
// command: read back from the kernel, not what was meant.
//
// One line of JSON goes to [Plan].ReportFD. When the exec fails a second line
// follows with Error set; when it succeeds the descriptor closes. When
// confining fails the only line has Error set.
type Report struct {
	Status
	Landlock landlock.Achieved `json:"landlock"`
	// OOMScoreAdj is /proc/self/oom_score_adj.
	OOMScoreAdj int `json:"oom_score_adj"`
	// Waiting: nothing was done yet, the process waits at [Plan].BarrierFD. Another line follows.
	Waiting bool   `json:"waiting,omitempty"`
	Error   string `json:"error,omitempty"`
}

// ParseStatus reads the text of /proc/PID/status. A field that is missing keeps
// its zero value; only seccomp and no_new_privs are expected of every kernel.
func ParseStatus(text string) (Status, error) {
	var s Status
	seen := 0
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if err := s.set(name, strings.TrimSpace(value)); err != nil {
			return Status{}, fmt.Errorf("cannot read process status: %s %s: %w", name, chat.Quote(value), chat.ErrInvalid)
		}
		if name == "Seccomp" || name == "NoNewPrivs" {
			seen++
		}
	}
	if seen != 2 {
		return Status{}, fmt.Errorf("cannot read process status: want one Seccomp and one NoNewPrivs: %w", chat.ErrInvalid)
	}
	return s, nil
}

func (s *Status) set(name, value string) (err error) {
	switch name {
	case "Uid":
		s.UIDs, err = numbers(value)
	case "Gid":
		s.GIDs, err = numbers(value)
	case "Groups":
		s.Groups, err = numbers(value)
	case "NSpid":
		s.NSPids, err = numbers(value)
	case "NoNewPrivs":
		s.NoNewPrivs = value == "1"
	case "Seccomp":
		s.Seccomp, err = strconv.Atoi(value)
	case "CapInh":
		s.CapInh, err = strconv.ParseUint(value, 16, 64)
	case "CapPrm":
		s.CapPrm, err = strconv.ParseUint(value, 16, 64)
	case "CapEff":
		s.CapEff, err = strconv.ParseUint(value, 16, 64)
	case "CapBnd":
		s.CapBnd, err = strconv.ParseUint(value, 16, 64)
	case "CapAmb":
		s.CapAmb, err = strconv.ParseUint(value, 16, 64)
	}
	return err
}

func numbers(text string) ([]int, error) {
	out := []int{}
	for _, f := range strings.Fields(text) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
