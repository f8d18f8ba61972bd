package plan

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// MaxPlan bounds a plan's JSON, in bytes.
const MaxPlan = 1 << 20

// Plan is the command that a process execs, with the rights that it keeps. It crosses a pipe as
// JSON, so that the argument list of chatd-shim shows neither the command nor its environment.
type Plan struct {
	// Dir is the working directory, absolute.
	Dir string `json:"dir"`
	// Argv is the command. If Argv[0] has no slash, it is searched in the PATH of Env, as by
	// execvp(3). Env is the command's whole environment, "NAME=value".
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	// Landlock are the paths that stay accessible; MinABI is the lowest Landlock ABI to accept,
	// at least 1.
	Landlock landlock.Rules `json:"landlock"`
	MinABI   int            `json:"min_abi"`
	// ProcessLimits are the profile's; NoFile 0 means 1024.
	chat.ProcessLimits
	// Openings is what the filter of system calls lets pass for this profile.
	Opened Openings `json:"opened,omitzero"`
	// Setsid starts a new session without a terminal (setsid(2)).
	Setsid bool `json:"setsid,omitempty"`
	// ReportFD is where the [Report] goes; 0 means nowhere.
	ReportFD int `json:"report_fd,omitempty"`
	// BarrierFD is the read end of the start barrier. Before every other step the process reports
	// on ReportFD that it waits, and reads one byte here. 0 means no barrier.
	BarrierFD int `json:"gate_fd,omitempty"`
	// Without leaves out walls, for tests and probes: landlock, seccomp, privileges.
	Without []chat.LayerName `json:"without,omitempty"`
}

// Openings are the exceptions that a profile makes from the filter of system calls.
type Openings struct {
	// Netlink allows sockets of NETLINK_ROUTE, which ip(8) and ss(8) need.
	Netlink bool `json:"netlink,omitempty"`
	// Filters allows a program to load filters of its own (seccomp(2)).
	Filters bool `json:"filters,omitempty"`
}

// Plan is a command in this view: its environment, rules and directory. extra, as "NAME=value",
// adds to the view's environment and overrides it.
func (v View) Plan(dir string, minABI int, argv, extra []string) Plan {
	return Plan{
		Dir: dir, Argv: argv, Env: mergeEnv(v.Env(), extra), Landlock: v.Rules(), MinABI: minABI,
		Opened: v.Opened, Without: v.Without,
	}
}

// mergeEnv is base and extra with one value for each name, the last one.
func mergeEnv(base, extra []string) []string {
	var out []string
	seen := map[string]int{}
	for _, e := range slices.Concat(base, extra) {
		name, _, _ := bytes.Cut([]byte(e), []byte("="))
		if i, ok := seen[string(name)]; ok {
			out[i] = e
			continue
		}
		seen[string(name)] = len(out)
		out = append(out, e)
	}
	return out
}

// Rules are the Landlock rules of a session: a second, independent wall behind
// the view. They grant /proc for reading only, or a chat could lower its own
// oom_score_adj again. The root directory itself has no rule: "ls /" fails. They leave out
// the paths that file rules deny as a whole.
func (v View) Rules() landlock.Rules {
	r, _ := v.leaveOut(v.exposedRules(v.baseRules()))
	return r
}

func (v View) baseRules() landlock.Rules {
	return landlock.Rules{
		Read:       []string{"/etc", "/proc", "/dev", path.Dir(onlineCPUs)},
		Exec:       []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", InsideDir},
		Write:      []string{v.Home, "/tmp", "/var/tmp", "/dev/shm", InsideRun},
		WriteFiles: []string{InsidePrompt, InsideLog},
		Devices: []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/random", "/dev/urandom",
			"/dev/ptmx"},
		DeviceDirs: []string{"/dev/pts"},
	}
}

// ReadPlan reads one plan, at most [MaxPlan] bytes, to the end of r. An unknown field is an
// error: it may be a wall that this program cannot apply.
func ReadPlan(r io.Reader) (Plan, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxPlan+1))
	if err != nil {
		return Plan{}, fmt.Errorf("cannot read the plan: %w", err)
	}
	if len(text) > MaxPlan {
		return Plan{}, chat.Invalid("cannot read the plan: more than %d bytes", MaxPlan)
	}
	var p Plan
	if err := chat.Strict(text, &p); err != nil {
		return Plan{}, chat.Invalid("cannot read the plan: %w", err)
	}
	return p, p.Validate()
}

// Validate refuses a plan that names no command, or paths that are not absolute.
func (p Plan) Validate() error {
	switch {
	case len(p.Argv) == 0 || p.Argv[0] == "":
		return chat.Invalid("cannot use the plan: no command")
	case len(p.Dir) == 0 || p.Dir[0] != '/':
		return chat.Invalid("cannot use the plan: directory %s is not absolute", chat.Quote(p.Dir))
	case p.ReportFD < 0 || p.ReportFD > 0 && p.ReportFD < 3:
		return chat.Invalid("cannot use the plan: report_fd %d: want 0, or 3 and more", p.ReportFD)
	case p.BarrierFD < 0 || p.BarrierFD > 0 && (p.BarrierFD < 3 || p.ReportFD == 0):
		return chat.Invalid("cannot use the plan: gate_fd %d: want 0, or 3 and more with a report_fd",
			p.BarrierFD)
	}
	return nil
}

// LeavesOut reports whether a wall is left out.
func (p Plan) LeavesOut(l chat.LayerName) bool { return slices.Contains(p.Without, l) }
