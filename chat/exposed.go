package chat

// Exposed is one path of the host that a session sees besides what every
// session does. Source is resolved: no part of it is a link, or may be swapped by a
// chat. A Target in the home exists already.
type Exposed struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Mode   Mode   `json:"mode"`
	// File: it is a regular file, not a directory.
	File bool `json:"file,omitempty"`
	// Exec: programs in it may be run also where it is read-only.
	Exec bool `json:"exec,omitempty"`
	// By is the key of the profile that asks for it.
	By string `json:"by"`
}
