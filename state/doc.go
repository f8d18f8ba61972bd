// Package state keeps what chatd must not forget: which chats there are, which
// uids were ever given, and who asked for what.
//
// Everything lies in one directory, held by one process:
//
//	lock          an exclusive flock(2); a lock, not a process number
//	install.key   32 random bytes that chat ids are derived with, made once
//	chatd.db      bbolt: records, uid blocks, outbox, head of the audit log
//	audit.jsonl   one JSON object a line, each naming the hash of the line before
//	audit-N.jsonl full logs, oldest first, each named by its first line's number
//
// All records are also in memory. Reading never touches the disk, and every
// look-up costs the same however many chats there are.
//
// # What is durable when
//
// [Store.Admit], [Store.Forget], [Store.EnsureBlock] and [Store.SetPhase] to
// reaping return after one fsync'd bbolt commit that holds the record, the uid
// counter and the audit event together. The event goes to the outbox bucket
// first and to audit.jsonl afterwards; [Open] writes what a crash left in the
// outbox, and the number "tx" in such a line keeps it from being written twice.
//
// [Store.Touch], [Store.SetPhase] to ready and [Store.Audit] are in memory or in
// the page cache when they return, and on the disk with the next commit or
// within about a second. A kill of the process loses no line of the audit log; a
// power cut may lose the last second of these. A chat whose ready was lost comes
// back as creating, and reconcile takes its steps again, which are idempotent.
//
// # Full logs
//
// A log that reaches Options.AuditMax bytes gets a name of its own, and the first
// line of the next one chains to its last. So all logs are one chain, and
// [VerifyAudit] reads them as one. Of full logs the oldest go when there are more
// than Options.AuditKeep, after a line that says how they ended; without such a
// line, their absence shows. A process may end at any step of it ([Store.rotate]).
//
// # Uids
//
// A profile owns blocks of uids, and each block has a counter that only rises.
// So a uid below the counter that belongs to no record is spent: that is the
// tombstone, and it takes no room. A chat that was reaped and is created again
// under the same external id has the same id and another uid.
//
// # What it does not stop
//
// Root can rewrite anything here: the hashes of the audit log are not keyed, and
// its head lies in a file of the same owner. The chain shows a line that was
// changed, dropped, added or moved by somebody who did not also rewrite every
// later line and the head; lines cut off within a second of being written and
// followed by a kill are not missed. Whoever needs more sends the log elsewhere.
// The log must not be rotated by others, and must not be cut.
//
// What is set aside for a full disk is so much as its file system keeps to it: one that
// copies on write, or knows no fallocate(2), may refuse all the same.
//
// On a file system that is read-only nothing is written: what is there is shown, and every
// change is refused with [ErrReadOnly], until chatd is started again where it can write.
//
// Nothing here looks at who asks: owners are data, and whether a caller may
// reach a chat is provision's to say. Nothing looks at the host either: that the
// uid range is free is checked where /etc/passwd is read.
package state
