package chat

import "time"

// The types of [Mount].
const (
	MountBind  = "bind"  // a path of the host
	MountTmpfs = "tmpfs" // memory, Size bytes at most
	MountProc  = "proc"  // the session's own processes
	MountDev   = "dev"   // the devices that every program expects
	MountLink  = "link"  // a symbolic link to Source
	MountDir   = "dir"   // an empty directory
	MountFile  = "file"  // a file that chatd writes
)

// Mount is one entry of a session's file tree, in the order in which they are made.
type Mount struct {
	Target string `json:"target"`
	Type   string `json:"type"`
	// Source is a path of the host, or where a link leads.
	Source string `json:"source,omitempty"`
	Mode   Mode   `json:"mode"`
	// Size bounds a tmpfs, in bytes; 0 is what the kernel gives, half of the memory.
	Size uint64 `json:"size,omitempty"`
	// Perm are the permissions of what is made new; 0 is what is usual.
	Perm uint32 `json:"perm,omitempty"`
	// Optional: left out where the host does not have Source.
	Optional bool `json:"optional,omitempty"`
	// By is what asks for it; empty means chatd itself.
	By string `json:"by,omitempty"`
}

// PathRight is one Landlock rule: what may be done at Path and, for a directory,
// below it. Everything that no rule names is refused.
type PathRight struct {
	// Right is list, read, exec or write; with _files for a single file; devices or device_dirs.
	Right string `json:"right"`
	Path  string `json:"path"`
}

// Plan is what a session is made of: not a description, but what it is, or would
// be, started from.
type Plan struct {
	ID      ID     `json:"id"`
	Profile string `json:"profile"`
	User    string `json:"user"`
	UID     uint32 `json:"uid"`
	// StartedAt is when the session of this plan began; nil while the chat is asleep,
	// and then this is the plan it would wake with.
	StartedAt *time.Time  `json:"started_at,omitempty"`
	Mounts    []Mount     `json:"mounts"`
	Landlock  []PathRight `json:"landlock"`
	// LandlockABI is the least that the kernel must have.
	LandlockABI int `json:"landlock_abi"`
	// Env are the names of the environment, which is made from nothing.
	Env     []string `json:"env"`
	Network Network  `json:"network"`
	// Namespaces are those that the session does not share with the host.
	Namespaces []string `json:"namespaces"`
	// Seccomp are the system calls that are refused; SeccompJudged those that are
	// refused with some arguments.
	Seccomp            []string `json:"seccomp"`
	SeccompConditional []string `json:"seccomp_judged"`
	// Without are the walls that are left out.
	Without []LayerName `json:"without"`
	// Notes say what was asked for and is not mounted, and why.
	Notes []string `json:"notes"`
}
