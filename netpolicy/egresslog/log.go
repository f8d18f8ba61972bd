package egresslog

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	maxEntries = 200
	// maxAll bounds the entries of all chats: 700 bytes each at most.
	maxAll = 100_000
	// flushEvery is how often windows are looked for that are over.
	flushEvery = 10 * time.Second
)

// Options is what a [Log] needs.
type Options struct {
	// Audit writes a line about refusals of a chat.
	Audit func(chat.ID, map[string]string)
	Now   func() time.Time
}

// Log is what became of the connections of all chats. Its methods are safe for concurrent use.
type Log struct {
	opt Options

	mu    sync.Mutex
	chats map[chat.ID]*kept
	all   int // entries of all chats
}

// kept is what is kept of one chat.
type kept struct {
	entries []chat.EgressEvent // the one that was counted last is last
	totals  chat.EgressTotals
	audited window
}

// New returns an empty log.
func New(opt Options) *Log { return &Log{opt: opt, chats: map[chat.ID]*kept{}} }

// Add counts events of a chat, and audits the refusals among them.
func (l *Log) Add(id chat.ID, events []chat.EgressEvent) {
	l.audit(id, l.add(id, events))
}

func (l *Log) audit(id chat.ID, lines []map[string]string) {
	for _, detail := range lines {
		l.opt.Audit(id, detail)
	}
}

func (l *Log) add(id chat.ID, events []chat.EgressEvent) (lines []map[string]string) {
	now := l.opt.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.chats[id]
	if k == nil {
		k = &kept{}
		l.chats[id] = k
	}
	lines = k.audited.turn(now)
	for _, e := range events {
		k.totals.Add(e)
		if !k.merge(e) {
			l.insert(k, e)
		}
		if e.Verdict == chat.EgressRefused {
			lines = append(lines, k.audited.line(now, e)...)
		}
	}
	return lines
}

// merge counts an event in the entry of its kind and minute, if there is one. That becomes the
// latest entry: what goes on is not forgotten for what was once.
func (k *kept) merge(e chat.EgressEvent) bool {
	minute := e.Time.Truncate(time.Minute)
	for i := range k.entries {
		known := k.entries[i]
		if known.EgressKind == e.EgressKind && known.Time.Truncate(time.Minute).Equal(minute) {
			known.Add(e)
			k.entries = append(slices.Delete(k.entries, i, i+1), known)
			return true
		}
	}
	return false
}

// insert makes an entry, and room for it. l.mu is held.
func (l *Log) insert(k *kept, e chat.EgressEvent) {
	from := k
	if len(k.entries) < maxEntries && l.all >= maxAll {
		for _, other := range l.chats {
			if len(other.entries) > len(from.entries) {
				from = other
			}
		}
	}
	if len(k.entries) >= maxEntries || l.all >= maxAll {
		from.entries = slices.Delete(from.entries, 0, 1)
		l.all--
	}
	k.entries = append(k.entries, e)
	l.all++
}

// Of returns what is kept of a chat, which has ended.
func (l *Log) Of(id chat.ID) chat.EgressLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.chats[id]
	if k == nil {
		return chat.EgressLog{Entries: []chat.EgressEvent{}}
	}
	entries := append([]chat.EgressEvent{}, k.entries...)
	slices.SortStableFunc(entries, func(a, b chat.EgressEvent) int {
		return a.Time.Compare(b.Time)
	})
	return chat.EgressLog{Entries: entries, Totals: k.totals}
}

// Forget forgets a chat, and audits what is still to be said of it.
func (l *Log) Forget(id chat.ID) {
	l.mu.Lock()
	k := l.chats[id]
	if k == nil {
		l.mu.Unlock()
		return
	}
	delete(l.chats, id)
	l.all -= len(k.entries)
	lines := k.audited.end(l.opt.Now())
	l.mu.Unlock()
	l.audit(id, lines)
}

// Run audits what is still to be said of each window that is over, until ctx ends.
func (l *Log) Run(ctx context.Context) {
	chat.Every(ctx, flushEvery, func() { l.Flush(false) })
}

// Flush audits how many refusals of each chat no line tells of, once its window is over;
// immediately if all is set.
func (l *Log) Flush(all bool) {
	for id, lines := range l.due(all) {
		l.audit(id, lines)
	}
}

func (l *Log) due(all bool) map[chat.ID][]map[string]string {
	now := l.opt.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	due := map[chat.ID][]map[string]string{}
	for id, k := range l.chats {
		if all {
			due[id] = k.audited.end(now)
		} else {
			due[id] = k.audited.turn(now)
		}
	}
	return due
}
