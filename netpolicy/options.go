package netpolicy

import "time"

// lockWait is how long a call waits for the xtables lock (iptables(8), --wait)
// when Options say nothing.
const lockWait = 10 * time.Second

// Options are fixed for the life of a host: changing the range leaves chats of
// the old one without a wall.
type Options struct {
	// Range is every uid a chat can ever have.
	Range Range
	// ProbeUID is a uid of the range that no chat is ever given; [Table.Probe]
	// tries the walls as this user. No policy holds for it.
	ProbeUID uint32
	// LockWait is how long a call waits for the xtables lock, in whole seconds;
	// zero means 10. Only the legacy iptables takes that lock.
	LockWait time.Duration
}
