package plan

// Entry is the task of chatd-shim enter, as JSON in the first of the files that it receives in
// the handshake of package systemd.
type Entry struct {
	// Argv is bubblewrap and its arguments. Its extra descriptors, from 3 on, are the files after
	// this one. The last two become its stdout and stderr, and the one before them its stdin if
	// Stdin is set.
	Argv  []string `json:"argv"`
	Stdin bool     `json:"stdin,omitempty"`
	// Own are the directories that must be mounted where the session's /tmp and
	// /var/tmp come from.
	Own []OwnMount `json:"own,omitempty"`
	// HostShm is the device number of the host's /dev/shm, from which the unit's must differ; 0
	// checks nothing.
	HostShm uint64 `json:"host_shm,omitempty"`
}

// OwnMount names by device and inode the directory that pam_namespace(8) must have mounted at
// Path for this chat.
type OwnMount struct {
	Path string `json:"path"`
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
}

// MaxEntry bounds an entry's JSON, in bytes.
const MaxEntry = 1 << 20
