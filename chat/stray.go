package chat

import "time"

// StrayRequest is what `chatd verify` asks of the mode scan of chatd-shim, as one line of JSON.
type StrayRequest struct {
	// Spent are ranges of the uids whose files are wanted, sorted, both ends included.
	Spent [][2]uint32 `json:"spent"`
	// Under, if it is not empty, are the only mounts to walk.
	Under []string `json:"under,omitempty"`
	// For is the time after which the walk ends.
	For time.Duration `json:"for"`
}

// StrayLine is one line of the answer. One of its fields is set.
type StrayLine struct {
	Find   *Stray    `json:"find,omitempty"`
	Unseen *Unseen   `json:"unseen,omitempty"`
	End    *StrayEnd `json:"end,omitempty"`
}

// Stray is a file of a wanted uid. Paths are bytes, because names of files are.
type Stray struct {
	UID   uint32 `json:"uid"`
	Mount []byte `json:"mount"`
	Path  []byte `json:"path"` // absolute, of 4,096 bytes at most
}

// Unseen is a directory or a file system that the walk did not look into.
type Unseen struct {
	Path []byte `json:"path"`
	Why  string `json:"why"`
}

// StrayEnd is the last line.
type StrayEnd struct {
	Entries int `json:"entries"`
	// Error says why the walk could not begin, or nobody read its lines.
	Error string `json:"error,omitempty"`
}

// MaxStrayLine is more than the longest line of an answer, in bytes: a path in base64.
const MaxStrayLine = 64 << 10
