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

// Mount is one entry of a session's file tree; entries are mounted in their order.
type Mount struct {
	Target string `json:"target"`
	Type   string `json:"type"`
	// Source is a path of the host, or a link's target.
	Source string `json:"source,omitempty"`
	Mode   Mode   `json:"mode"`
	// Size bounds a tmpfs, in bytes; 0 means the kernel's default, half of the memory.
	Size uint64 `json:"size,omitempty"`
	// Perm are the permissions of a new file or directory; 0 means the default.
	Perm uint32 `json:"perm,omitempty"`
	// Optional means that the entry is left out if the host has no Source.
	Optional bool `json:"optional,omitempty"`
	// By names the key or rule behind it; empty means chatd itself.
	By string `json:"by,omitempty"`
}

// PathRight is one Landlock rule: the access allowed at Path and, for a directory, below it.
// Landlock refuses access that no rule allows.
type PathRight struct {
	// Right is list, read, exec or write; with _files for a single file; devices or device_dirs.
	Right string `json:"right"`
	Path  string `json:"path"`
}

// Plan is the input from which a session is, or would be, started.
type Plan struct {
	ID      ID     `json:"id"`
	Profile string `json:"profile"`
	User    string `json:"user"`
	UID     uint32 `json:"uid"`
	// StartedAt is when the session of this plan began; nil while the chat is asleep: this is then
	// the plan of its next wake.
	StartedAt *time.Time  `json:"started_at,omitempty"`
	Mounts    []Mount     `json:"mounts"`
	Landlock  []PathRight `json:"landlock"`
	// LandlockABI is the lowest ABI that the plan needs.
	LandlockABI int `json:"landlock_abi"`
	// Env are the names of the environment's variables; none is inherited.
	Env     []string `json:"env"`
	Network Network  `json:"network"`
	// Namespaces lists the namespaces that the session does not share with the host.
	Namespaces []string `json:"namespaces"`
	// Seccomp lists the refused system calls, SeccompConditional those refused with some arguments only.
	Seccomp            []string `json:"seccomp"`
	SeccompConditional []string `json:"seccomp_judged"`
	// Without are the walls that are left out.
	Without []LayerName `json:"without"`
	// Notes explain which requested paths are not mounted, and why.
	Notes []string `json:"notes"`
}
