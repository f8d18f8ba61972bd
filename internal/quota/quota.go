package quota

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

// Share names one thing that owners share. It is the key below owner_shares.
type Share string

// The shares.
const (
	Chats    Share = "chats"     // chats that are there, awake or asleep
	Creates  Share = "creates"   // new chats in a minute
	Awake    Share = "awake"     // chats with a session, or getting one
	Streams  Share = "streams"   // answers that are sent piece by piece
	RunBytes Share = "run_bytes" // what background runs keep, or may still print
	UIDs     Share = "uids"      // uids that were ever given
)

// Key is the share as the config has it.
func (s Share) Key() string { return "owner_shares." + string(s) }

// words of each share: what is refused, what is counted, what frees some.
var words = map[Share]struct{ refused, counted, frees string }{
	Chats:   {"create a chat", "chats", "reap chats that nobody needs"},
	Creates: {"create a chat", "new chats a minute", "time"},
	Awake:   {"wake another chat", "awake chats", "put one to sleep"},
	Streams: {"open a stream", "open streams", "close one"},
	RunBytes: {"start a background run", "bytes for the output of background runs",
		"remove runs that have ended, or give output_max"},
	UIDs: {"create a chat", "uids, which are never used twice",
		"only a higher limit does: ask an operator"},
}

// All are the shares, in the order in which they are shown.
func All() []Share { return []Share{Chats, Creates, Awake, Streams, RunBytes, UIDs} }

// Limits are what one owner may have of each share; one that is missing or zero has no bound.
type Limits map[Share]uint64

// Check returns a [SpentError] if an owner that has used of the share would exceed it by want more.
func (l Limits) Check(share Share, owner string, used, want uint64) error {
	if limit := l[share]; limit > 0 && used+want > limit {
		return &SpentError{Share: share, Owner: owner, Used: used, Limit: limit}
	}
	return nil
}

// Uses lists how much each owner has of each share; it leaves out those with none.
func (l Limits) Uses(used map[Share]map[string]uint64) []chat.ShareUse {
	uses := []chat.ShareUse{}
	for _, share := range All() {
		for _, owner := range slices.Sorted(maps.Keys(used[share])) {
			if n := used[share][owner]; n > 0 {
				uses = append(uses,
					chat.ShareUse{Owner: owner, Share: string(share), Used: n, Limit: l[share]})
			}
		}
	}
	return uses
}

// Warning is one sentence about a share that is half spent.
func Warning(u chat.ShareUse) string {
	s := Share(u.Share)
	return fmt.Sprintf("%s: owner %s has %d of at most %d %s", s.Key(), chat.Quote(u.Owner), u.Used, u.Limit,
		words[s].counted)
}

// SpentError is the error of a used-up share; it is [chat.ErrBusy].
type SpentError struct {
	Share       Share
	Owner       string
	Used, Limit uint64
	// After is when time alone has freed some; zero if it does not.
	After time.Duration
	// Why says what it is spent on, as in "3 at work"; empty if that is unknown.
	Why string
}

// Error says what is spent, by whom, by which key, and what frees some.
func (e *SpentError) Error() string {
	w := words[e.Share]
	frees := w.frees
	if e.After > 0 {
		frees = fmt.Sprintf("try again in %d s", e.Seconds())
	}
	if e.Why != "" {
		frees += " (" + e.Why + ")"
	}
	return fmt.Sprintf("cannot %s: owner %s has %d of at most %d %s (%s): %s",
		w.refused, chat.Quote(e.Owner), e.Used, e.Limit, w.counted, e.Share.Key(), frees)
}

// Seconds is After in whole seconds, rounded up.
func (e *SpentError) Seconds() int { return int((e.After + time.Second - 1) / time.Second) }

// Unwrap is the kind.
func (e *SpentError) Unwrap() error { return chat.ErrBusy }
