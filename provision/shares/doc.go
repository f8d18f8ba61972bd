// Package shares counts what each owner holds of what all owners share, and refuses an owner more
// than its share.
//
// # Theory of operation
//
// Package quota has the limits of one owner and the words of a refusal. [Shares] knows how much of
// each share is used, and asks quota before it grows:
//
//	chats, uids  the records, within the transaction that adds one ([Shares.Admit])
//	creates      a bucket for each owner, which a restart fills ([Shares.Create])
//	awake        the sessions there are, and the chats that are waking ([Shares.Wake])
//	run bytes    what background runs keep or may still print ([Shares.Run])
//
// max_awake and max_awake_memory bound the chats of all owners in the same place as awake does
// those of one. Where chats that were just used, or that are waking, meet a bound of all owners,
// wakes stand in a line until places become free; else they are refused. A bridge may try again
// at any rate: the audit log has one refusal a minute of each owner and share. Operators are
// refused nothing but the bounds of all: they must be able to mend a host that is full.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Several owners together can use up what there is. Package cgroup bounds what a chat takes of the
// host while it is awake. Streams: package api counts them.
package shares
