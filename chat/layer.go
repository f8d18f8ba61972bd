package chat

import "time"

// Status is a summary of the daemon for operators. Reading it probes nothing; the layers are the
// last probe's result.
type Status struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Ready means that since then every required layer was found enforced, so that chats may be
	// created and woken, and that work which the last chatd left unfinished is complete.
	Ready  bool `json:"ready"`
	Chats  int  `json:"chats"`
	Awake  int  `json:"awake"`
	Asleep int  `json:"asleep"`
	// AtWork counts the awake chats in use: a run, a file tool, a client at the terminal.
	AtWork int `json:"at_work"`
	// Layers are the layers that are not on.
	Layers []Layer `json:"layers"`
	// Bounds are limits of the daemon of which at least half is used.
	Bounds []Bound `json:"bounds"`
	// Shares are the shares of which an owner uses at least half.
	Shares []ShareUse `json:"shares"`
	Disks  []Disk     `json:"disks"`
	// Findings are faults that reconcile could not repair, and gaps that the config leaves open.
	Findings []string `json:"findings"`
	// Failures are the most recent failed acts, the newest first.
	Failures []Failure `json:"failures"`
}

// Bound is a limit, and how much of it is used.
type Bound struct {
	Name string `json:"name"`
	Used uint64 `json:"used"`
	Max  uint64 `json:"max"`
}

// Disk is the free space of a file system that chatd writes to.
type Disk struct {
	// For names chatd's data on it: state, homes, run or accounts.
	For        string `json:"for"`
	Path       string `json:"path"`
	Free       uint64 `json:"free_bytes"`
	Size       uint64 `json:"size_bytes"`
	FreeInodes uint64 `json:"free_inodes"`
	Inodes     uint64 `json:"inodes"`
	ReadOnly   bool   `json:"read_only"`
}

// Failure is an act that failed, as recorded in the audit log.
type Failure struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"`
	Chat   ID        `json:"chat,omitempty"`
	By     string    `json:"by,omitempty"`
	Error  string    `json:"error"`
}

// LayerName names one wall, in a chat's layers, in doctor, after --allow-missing and in the audit
// log.
type LayerName string

// The walls, from the outside in.
const (
	LayerAccount    LayerName = "account"    // a Linux user of its own
	LayerHome       LayerName = "home"       // 0700 on a root-owned parent
	LayerTmp        LayerName = "tmp"        // /tmp, /var/tmp and /dev/shm of its own
	LayerDisk       LayerName = "disk"       // bytes and inodes on disk
	LayerMemory     LayerName = "memory"     // memory and swap limits
	LayerPids       LayerName = "pids"       // number of tasks
	LayerSockets    LayerName = "sockets"    // kernel memory of sockets and locks
	LayerCPU        LayerName = "cpu"        // share of the CPUs
	LayerEgress     LayerName = "egress"     // owner rules for packets that leave
	LayerNetwork    LayerName = "network"    // loopback and abstract sockets
	LayerProc       LayerName = "proc"       // a /proc without other users' processes
	LayerView       LayerName = "view"       // bubblewrap's file tree
	LayerLandlock   LayerName = "landlock"   // file access by Landlock
	LayerSeccomp    LayerName = "seccomp"    // refused system calls
	LayerPrivileges LayerName = "privileges" // no_new_privs, no capabilities
	LayerPath       LayerName = "path"       // shims, then allowed commands
)

// LayerNames lists every wall, outermost first.
func LayerNames() []LayerName {
	return []LayerName{LayerAccount, LayerHome, LayerTmp, LayerDisk, LayerMemory,
		LayerSockets, LayerPids, LayerCPU, LayerEgress,
		LayerNetwork, LayerProc, LayerView, LayerLandlock, LayerSeccomp, LayerPrivileges, LayerPath}
}

// LayerState is how well a wall is enforced.
type LayerState string

const (
	// LayerOn: the probe found all that the layer promises.
	LayerOn LayerState = "on"
	// LayerWeaker: something is enforced, but less than the layer promises; By says what.
	LayerWeaker LayerState = "weaker"
	// LayerOff: nothing is enforced.
	LayerOff LayerState = "off"
	// LayerUnknown: the layer was not probed yet, or could not be for lack of room or time.
	LayerUnknown LayerState = "unknown"
)

// Layer is the result of probing a wall, never what the config says.
type Layer struct {
	Name  LayerName  `json:"name"`
	State LayerState `json:"state"`
	// By is the mechanism that enforces it here: "cgroup v1", "userdb", "Landlock ABI 6".
	By string `json:"by,omitempty"`
	// Probe describes the probe and its result.
	Probe string `json:"probe,omitempty"`
	// Fix is what to install or change; empty when the layer is on.
	Fix string `json:"fix,omitempty"`
	// At is when it was probed.
	At time.Time `json:"at"`
}

// Host is what doctor prints: the machine and its walls.
type Host struct {
	Kernel  string  `json:"kernel"`
	Backend string  `json:"backend"`
	Version string  `json:"version"`
	Layers  []Layer `json:"layers"`
	// Missing lists layers that config requires and the host lacks.
	Missing []LayerName `json:"missing"`
	// Allowed lists the layers that --allow-missing excused.
	Allowed []LayerName `json:"allowed_missing"`
	Chats   int         `json:"chats"`
	Awake   int         `json:"awake"`
	// Broken lists other faults of the host that make doctor fail, one sentence each.
	Broken []string `json:"broken"`
	// Findings are faults that reconcile could not repair, one sentence each.
	Findings []string `json:"findings"`
	// Shares lists what each owner uses of each share, if any.
	Shares []ShareUse `json:"shares"`
}

// ShareUse is how much of a share an owner uses, and the limit for one owner; a Limit of 0 means no
// limit.
type ShareUse struct {
	Owner string `json:"owner"`
	Share string `json:"share"`
	Used  uint64 `json:"used"`
	Limit uint64 `json:"limit"`
}

// HalfSpent reports whether half of the share is used, or more.
func (u ShareUse) HalfSpent() bool { return u.Limit > 0 && u.Used >= (u.Limit+1)/2 }
