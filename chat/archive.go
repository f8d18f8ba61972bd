package chat

import (
	"strings"
	"time"
)

// ArchiveName names an archive: the id of its chat, a dash and the time it was begun, in UTC, as in
// 0123456789abcdef-20261125T160000Z. It is safe in a file name.
type ArchiveName string

// archiveTime is the layout of an [ArchiveName]'s time.
const archiveTime = "20060102T150405Z"

// NewArchiveName returns the name of an archive that is begun at the time.
func NewArchiveName(id ID, at time.Time) ArchiveName {
	return ArchiveName(string(id) + "-" + at.UTC().Format(archiveTime))
}

// ParseArchiveName accepts only the form that [NewArchiveName] makes.
func ParseArchiveName(s string) (ArchiveName, error) {
	id, at, _ := strings.Cut(s, "-")
	if _, err := ParseID(id); err == nil {
		if t, err := time.Parse(archiveTime, at); err == nil && t.Format(archiveTime) == at {
			return ArchiveName(s), nil
		}
	}
	return "", Invalid("cannot use %s as the name of an archive: want a chat id and a time, as "+
		"in 0123456789abcdef-20261125T160000Z", Quote(s))
}

// ID is the id of the archive's chat. The name is one that [ParseArchiveName] accepts.
func (n ArchiveName) ID() ID { return ID(strings.SplitN(string(n), "-", 2)[0]) }

// Archive is a chat that was written down: its home, its record, its schedules and the log of its
// terminal.
type Archive struct {
	Name       ArchiveName       `json:"name"`
	Chat       ID                `json:"chat"`
	ExternalID string            `json:"external_id"`
	Owner      string            `json:"owner"`
	Agent      string            `json:"agent"`
	Profile    string            `json:"profile"`
	Labels     map[string]string `json:"labels,omitempty"`
	CreatedAt  time.Time         `json:"created_at" doc:"When the chat was created."`
	ArchivedAt time.Time         `json:"archived_at"`
	// ExpiresAt is nil if it is kept for ever.
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it is removed; absent if never."`
	// Entries and Bytes are those of the home: files and directories, and content without holes.
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	// Size is that of the file, in bytes.
	Size      int64 `json:"size" doc:"The size of the file, in bytes."`
	Encrypted bool  `json:"encrypted"`
	// Sent: a command of the operator's has the file, and not the directory.
	Sent bool `json:"sent,omitempty" doc:"The operator's command has it, and not the directory."`
	// Kept: the chat was not reaped for it.
	Kept bool `json:"kept,omitempty" doc:"The chat was kept."`
	// Snapshot: the chat went on meanwhile. Slept: why a chat that was awake sleeps now. Both are in
	// the answer to who makes it.
	Snapshot bool   `json:"snapshot,omitempty" doc:"It is of a snapshot: the chat stayed awake."`
	Slept    string `json:"slept,omitempty" doc:"Why the chat sleeps now: no snapshot."`
	// Left counts what is not in it, as sockets; LeftNames are the first of them, quoted.
	Left      int64    `json:"left,omitempty"`
	LeftNames []string `json:"left_names,omitempty"`
}

// ToArchive says how a chat is archived.
type ToArchive struct {
	// Keep leaves the chat, awake if a snapshot could be taken of it, and else asleep; otherwise it
	// is reaped once its archive is checked.
	Keep bool `json:"keep,omitempty" doc:"Do not reap it: awake if it has a snapshot, or asleep."`
	// StayAwake refuses where an awake chat that is kept would be put to sleep, as ErrBusy.
	StayAwake bool `json:"stay_awake,omitempty" doc:"With keep: refuse (busy) to let it sleep."`
}

// ArchiveFilter narrows a list of archives. Zero fields do not narrow.
type ArchiveFilter struct {
	Owner      string `json:"owner,omitempty" query:"owner" maxLength:"64" doc:"Only those of this owner."`
	ExternalID string `json:"external_id,omitempty" query:"external_id" maxLength:"512" doc:"Only those of this external id."`
	Chat       ID     `json:"chat,omitempty" query:"chat" maxLength:"16" doc:"Only those of this chat."`
}

// ArchiveList is what a list of archives answers, the newest last.
type ArchiveList struct {
	Archives []Archive `json:"archives"`
}

// Matches reports whether the archive is in the list.
func (f ArchiveFilter) Matches(a Archive) bool {
	return (f.Owner == "" || f.Owner == a.Owner) && (f.Chat == "" || f.Chat == a.Chat) &&
		(f.ExternalID == "" || f.ExternalID == a.ExternalID)
}

// ArchiveCheck says that an archive is as it was when it was checked after it was written: its
// files have the hashes of its manifest, and that this install's keyed hash. Otherwise there is an
// error.
type ArchiveCheck struct {
	Name ArchiveName `json:"name"`
	// Size is how many bytes were read.
	Size int64 `json:"size" doc:"How many bytes were read."`
}

// ArchiveProgress is how far an archive or unarchive of a chat is.
type ArchiveProgress struct {
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	// Doing is packing, checking or unpacking.
	Doing string `json:"doing"`
}

// Backup is an archive of the daemon's state: an uncompressed tar that is root's alone.
type Backup struct {
	Path  string    `json:"path" doc:"The archive, in the state directory. It has the install key in clear."`
	At    time.Time `json:"at"`
	Chats int       `json:"chats"`
	// AuditSeq is the number of the audit log's last line in it.
	AuditSeq uint64 `json:"audit_seq"`
}
