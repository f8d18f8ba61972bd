package plan

import (
	"strconv"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// Status are the fields of /proc/PID/status (proc_pid_status(5)) that chatd checks.
type Status struct {
	// UIDs and GIDs are real, effective, saved and file system ids.
	UIDs   []int `json:"uids"`
	GIDs   []int `json:"gids"`
	Groups []int `json:"groups"`
	// NSPids are the process's pids, from the namespace of that /proc inwards.
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

// Report is the state of a confined process just before it execs the command, as read back from
// the kernel.
//
// One line of JSON goes to [Plan].ReportFD. If the exec fails, a second line follows with Error
// set; if it succeeds, the descriptor closes. If confining fails, the only line has Error set.
type Report struct {
	Status
	Landlock landlock.Result `json:"landlock"`
	// OOMScoreAdj is /proc/self/oom_score_adj.
	OOMScoreAdj int `json:"oom_score_adj"`
	// Waiting: the process waits at [Plan].BarrierFD, before its first step. Another line follows.
	Waiting bool   `json:"waiting,omitempty"`
	Error   string `json:"error,omitempty"`
}

// Correct returns l as off if the report shows that the layer is not in force.
func (r Report) Correct(l chat.Layer) chat.Layer {
	var ok bool
	switch l.Name {
	case chat.LayerLandlock:
		ok = r.Landlock.ABI > 0
	case chat.LayerSeccomp:
		ok = r.Seccomp == 2
	case chat.LayerPrivileges:
		ok = r.NoNewPrivs && r.CapEff|r.CapPrm|r.CapInh|r.CapAmb == 0
	default:
		return l
	}
	if !ok {
		l.State, l.Probe = chat.LayerOff, "the session's own report says so"
	}
	return l
}

// ParseStatus parses the text of /proc/PID/status. A missing field keeps its zero value; only
// seccomp and no_new_privs are required.
func ParseStatus(text string) (Status, error) {
	var s Status
	seen := 0
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if err := s.set(name, strings.TrimSpace(value)); err != nil {
			return Status{}, chat.Invalid("cannot read process status: %s %s", name, chat.Quote(value))
		}
		if name == "Seccomp" || name == "NoNewPrivs" {
			seen++
		}
	}
	if seen != 2 {
		return Status{}, chat.Invalid("cannot read process status: want one Seccomp and one NoNewPrivs")
	}
	return s, nil
}

func (s *Status) set(name, value string) (err error) {
	switch to := map[string]any{
		"Uid": &s.UIDs, "Gid": &s.GIDs, "Groups": &s.Groups, "NSpid": &s.NSPids, "Seccomp": &s.Seccomp,
		"NoNewPrivs": &s.NoNewPrivs, "CapInh": &s.CapInh, "CapPrm": &s.CapPrm, "CapEff": &s.CapEff,
		"CapBnd": &s.CapBnd, "CapAmb": &s.CapAmb,
	}[name].(type) {
	case *[]int:
		*to, err = numbers(value)
	case *bool:
		*to = value == "1"
	case *int:
		*to, err = strconv.Atoi(value)
	case *uint64:
		*to, err = strconv.ParseUint(value, 16, 64)
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
