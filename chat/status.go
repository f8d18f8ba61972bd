package chat

import "time"

// Status is the daemon at a glance: what an operator wants to know first at night. Nothing is
// tried for it; the layers are as the last probe found them.
type Status struct {
	Version string    `json:"version"`
	Since   time.Time `json:"since"`
	// Ready says that every required layer was found standing since then, so that chats may be
	// created and woken, and that what the last chatd left half done is finished.
	Ready  bool `json:"ready"`
	Chats  int  `json:"chats"`
	Awake  int  `json:"awake"`
	Asleep int  `json:"asleep"`
	// AtWork counts the awake chats in use: a run, a file tool, a client at the terminal.
	AtWork int `json:"at_work"`
	// Layers are those that are not on.
	Layers []Layer `json:"layers"`
	// Bounds are limits of the daemon of which at least half is used.
	Bounds []Bound `json:"bounds"`
	// Shares are those of owners who have used at least half of one.
	Shares []ShareUse `json:"shares"`
	Disks  []Disk     `json:"disks"`
	// Findings are things reconcile could not put right, and what the config leaves open.
	Findings []string `json:"findings"`
	// Failures are the last acts that failed, the newest first.
	Failures []Failure `json:"failures"`
}

// Bound is a limit, and how much of it is used.
type Bound struct {
	Name string `json:"name"`
	Used uint64 `json:"used"`
	Max  uint64 `json:"max"`
}

// Disk is what is left of a file system that chatd writes to.
type Disk struct {
	// For is what lies on it: state, homes, run or accounts.
	For        string `json:"for"`
	Path       string `json:"path"`
	Free       uint64 `json:"free_bytes"`
	Size       uint64 `json:"size_bytes"`
	FreeInodes uint64 `json:"free_inodes"`
	Inodes     uint64 `json:"inodes"`
	ReadOnly   bool   `json:"read_only"`
}

// Failure is an act that failed, as the audit log has it.
type Failure struct {
	At     time.Time `json:"at"`
	Action string    `json:"action"`
	Chat   ID        `json:"chat,omitempty"`
	By     string    `json:"by,omitempty"`
	Error  string    `json:"error"`
}
