package chat

// StrayRequest is what `chatd verify` asks of the mode scan of chatd-shim, as one line of JSON.
type StrayRequest struct {
	// Spent are ranges of the uids whose files are wanted, sorted, both ends included.
	Spent [][2]uint32 `json:"spent"`
	// Under, if it is not empty, are the only mounts to walk.
	Under []string `json:"under,omitempty"`
}

// StrayLine is one line of the answer. One of its fields is set.
type StrayLine struct {
	// At is the directory that is being looked at; it is written every second.
	At   []byte    `json:"at,omitempty"`
	Find *Stray    `json:"find,omitempty"`
	End  *StrayEnd `json:"end,omitempty"`
}

// Stray is what one directory has of one uid. Paths are bytes, because names of files are.
type Stray struct {
	UID   uint32 `json:"uid"`
	Files int    `json:"files"`
	Mount []byte `json:"mount"`
	First []byte `json:"first"` // the absolute path of one of them, 4,096 bytes at most
}

// StrayEnd is the last line.
type StrayEnd struct {
	Entries int `json:"entries"`
	// Unseen counts the directories that were not entered, and Why says of the first why.
	Unseen int    `json:"unseen,omitempty"`
	Why    string `json:"why,omitempty"`
	// Missing names a wall that the kernel does not have.
	Missing string `json:"missing,omitempty"`
	// Error says why the walk could not begin, or ended early.
	Error string `json:"error,omitempty"`
}

// MaxStrayLine is more than the longest line of an answer, in bytes: a path in base64.
const MaxStrayLine = 64 << 10
