// Package state stores what chatd must not lose: the chats, the uids that were ever given, and the
// audit log.
//
// Everything is in one directory, locked by one process:
//
//	lock          an exclusive flock(2); a lock, not a process number
//	install.key   32 random bytes that chat ids are derived with, made once
//	chatd.db      bbolt: records, uid blocks, outbox, head of the audit log
//	audit.jsonl   one JSON object a line, each naming the hash of the line before
//	audit-N.jsonl full logs, oldest first, each named by its first line's number
//	backup.tar    the last backup
//
// All records are also in memory. Reads never access the disk, and a look-up's cost does not depend
// on the number of chats.
//
// # What is durable when
//
// [Store.Admit], [Store.Forget], [Store.EnsureBlock] and [Store.SetPhase] to reaping return after
// one fsync'd bbolt commit that holds the record, the uid counter and the audit event together. The
// event goes to the outbox bucket first and to audit.jsonl afterwards; [Open] writes the lines that
// a crash left in the outbox, and their number "tx" prevents writing one twice.
//
// [Store.Touch], [Store.SetPhase] to ready and [Store.Audit] are in memory or in the page cache
// when they return, and on the disk with the next commit or within about a second. Killing the
// process loses no line of the audit log; a power cut may lose the last second of these. A chat
// whose ready was lost is creating again after the restart, and reconcile repeats its steps, which
// are idempotent.
//
// # Full logs
//
// A log that reaches Options.AuditMax bytes is renamed, and the first line of the next log chains
// to its last. So all logs form one chain, and [CheckAudit] reads them as one. Beyond
// Options.AuditKeep full logs the oldest are removed, after a line that records how they ended;
// without this line verification reports them missing. A process may end at any step of a rotation
// ([Store.rotate]).
//
// # Uids
//
// A profile owns blocks of uids, and each block has a counter that only rises. So a uid below the
// counter that belongs to no record is spent: this tombstone needs no storage. A chat that is
// reaped and created again under the same external id gets the same id and another uid.
//
// # Versions and backups
//
// The database has a [Version]. Another one is refused unchanged. [Store.Backup] writes a state into
// a tar, which tar(1) puts in place. A database that lacks uids in use is refused ([CheckGiven]).
//
// # What it does not stop
//
// Root can rewrite anything here: the hashes of the audit log are not keyed, and its head is in a
// file of the same owner. The chain reveals a line that was changed, dropped, added or moved,
// unless every later line and the head were rewritten too. It does not reveal lines that were cut
// off within a second of being written, just before a kill. For more, send the log to another
// machine. No other program may rotate or truncate the log.
//
// The blocks reserved against a full disk are as good as the file system's promise. One that copies
// on write, or lacks fallocate(2), may still refuse a write.
//
// On a read-only file system the state can be read, and every change is refused with [ErrReadOnly]
// until chatd is restarted on a writable one.
//
// This package does not authorize callers: owners are data, and provision decides whether a caller
// may reach a chat. Nor does it check that the uid range is free on the host: the reader of
// /etc/passwd does.
package state
