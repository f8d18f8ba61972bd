package chat

import "time"

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
