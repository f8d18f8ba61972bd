package scan

import "slices"

// Range is a range of uids, both ends included.
type Range [2]uint32

// Position is where a turn stopped: a directory below a mount. Both are bytes, because names are.
type Position struct {
	Mount []byte `json:"mount"`
	// Path is the directory below Mount, without a slash in front; empty is Mount itself.
	Path []byte `json:"path,omitempty"`
	// Beyond: the directory itself, with what is in it, is left out. A turn that could not get out
	// of it leaves that to the next.
	Beyond bool `json:"beyond,omitempty"`
}

// Request is what a turn is to do.
type Request struct {
	// Spent are the uids whose files are wanted, sorted.
	Spent []Range `json:"spent"`
	// From is where the last turn stopped; nil begins anew.
	From *Position `json:"from,omitempty"`
	// Entries and Seconds bound the turn.
	Entries int `json:"entries"`
	Seconds int `json:"seconds"`
	// Under, if it is not empty, are the only mounts to walk.
	Under []string `json:"under,omitempty"`
}

// Line is one line of a turn. One of its fields is set.
type Line struct {
	// At is where the turn is now; it is written every few seconds.
	At   *Position `json:"at,omitempty"`
	Find *Find     `json:"find,omitempty"`
	End  *End      `json:"end,omitempty"`
}

// Find is what one directory has of one uid.
type Find struct {
	UID   uint32 `json:"uid"`
	Files int    `json:"files"`
	Mount []byte `json:"mount"`
	// First is the absolute path of one of the files, cut off after maxPath bytes.
	First []byte `json:"first"`
}

// End is the last line of a turn.
type End struct {
	// Complete: all that was to be looked at was; otherwise At is where it stopped.
	Complete bool      `json:"complete,omitempty"`
	At       *Position `json:"at,omitempty"`
	Entries  int       `json:"entries"`
	// Unseen counts the directories that were not entered, and Why says of the first why.
	Unseen int    `json:"unseen,omitempty"`
	Why    string `json:"why,omitempty"`
	// Missing names a wall that the kernel does not have.
	Missing string `json:"missing,omitempty"`
	// Error says why the turn could not begin.
	Error string `json:"error,omitempty"`
}

const (
	// maxPath bounds the path of a find, in bytes.
	maxPath = 4096
	// maxDepth is how many directories a walk enters below each other.
	maxDepth = 64
	// maxBelow is how many names of directories are held of each.
	maxBelow = 4096
	// maxMounts bounds the file systems of a turn.
	maxMounts = 256
	// maxOwners bounds the uids that are told of one directory.
	maxOwners = 256
)

// MaxLine is more than the longest line of a turn, in bytes: a path of maxDepth names, in base64.
const MaxLine = 64 << 10

// wanted reports whether a uid is in one of the ranges.
func wanted(spent []Range, uid uint32) bool {
	_, found := slices.BinarySearchFunc(spent, uid, func(r Range, uid uint32) int {
		switch {
		case r[1] < uid:
			return -1
		case r[0] > uid:
			return 1
		}
		return 0
	})
	return found
}
