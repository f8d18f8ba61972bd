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
