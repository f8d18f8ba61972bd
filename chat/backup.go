package chat

import "time"

// Backup is an archive of the daemon's state: an uncompressed tar that is root's alone.
type Backup struct {
	Path  string    `json:"path" doc:"The archive, in the state directory. It has the install key in clear."`
	At    time.Time `json:"at"`
	Chats int       `json:"chats"`
	// AuditSeq is the number of the audit log's last line in it.
	AuditSeq uint64 `json:"audit_seq"`
}
