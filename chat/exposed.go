package chat

// Exposed is one path of the host that a session sees beyond those that every session sees. Source
// is resolved: no part of it is a link, and no chat can replace a part. A Target in the home
// already exists.
type Exposed struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Mode   Mode   `json:"mode"`
	// File means that Source is a regular file, not a directory.
	File bool `json:"file,omitempty"`
	// Exec means that programs in it may be executed even if it is read-only.
	Exec bool `json:"exec,omitempty"`
	// By is the profile's key that exposes it.
	By string `json:"by"`
}
