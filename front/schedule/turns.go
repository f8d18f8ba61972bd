package schedule

import (
	"slices"
	"time"
)

// turns are the schedules of one chat: one runs, the others that are due wait.
type turns struct {
	entries map[string]*entry
	taken   bool // one is ready, or runs
	waiting []*entry
}

// resume gives every schedule its time after the clock was set back.
func (r *Runner) resume(now time.Time) {
	for _, e := range slices.Clone(r.queue) {
		at := e.at
		var next time.Time
		r.unlocked(func() { next = r.opt.Resume(e.chat, e.id, at, now) })
		if e.awaits(at) {
			r.set(e, next)
		}
	}
}

// unlocked calls do without the lock. Thousands of schedules may be computed in turn, and callers
// of Add or Look do not wait for all of them.
func (r *Runner) unlocked(do func()) {
	r.mu.Unlock()
	defer r.mu.Lock()
	do()
}

// awaits reports whether the entry still waits for that time: it may have been removed, or
// another of its name added, while the lock was free.
func (e *entry) awaits(at time.Time) bool { return !e.gone && e.index >= 0 && e.at.Equal(at) }

func (r *Runner) isEnding() bool { return r.ctx != nil && r.ctx.Err() != nil }

// due queues a schedule for its turn, or counts that it could not.
func (r *Runner) due(e *entry, now time.Time) {
	at, next, ok := e.at, Next{}, false
	r.unlocked(func() { next, ok = r.opt.After(e.chat, e.id, at, now) })
	if !e.awaits(at) {
		return
	}
	if !ok {
		r.remove(e.chat, e.id)
		return
	}
	if e.busy {
		e.skipped += 1 + next.Missed
	} else {
		e.busy, e.dueAt, e.missed, e.owner = true, at, next.Missed, next.Owner
		t := r.chats[e.chat]
		if t.taken {
			t.waiting = append(t.waiting, e)
		} else {
			t.taken = true
			r.ready = append(r.ready, e)
		}
	}
	r.set(e, next.At)
}

// begin starts runs while there are slots.
func (r *Runner) begin() {
	for r.running < r.opt.Slots && len(r.ready) > 0 && r.ctx != nil && !r.isEnding() {
		e := r.ready[0]
		r.ready[0] = nil
		r.ready = r.ready[1:]
		switch {
		case e.gone:
			r.pass(e)
		case r.owned[e.owner] >= r.share():
			r.parked[e.owner] = append(r.parked[e.owner], e)
		default:
			r.running++
			r.owned[e.owner]++
			d := Due{Chat: e.chat, ID: e.id, At: e.dueAt, Missed: e.missed, Next: e.at, UnderWay: e.resumed}
			r.runs.Go(func() { r.run(e, d) })
		}
	}
}

// share is how many simultaneous runs one owner may have: some slots are left for others, because a
// run may take an hour.
func (r *Runner) share() int { return max(1, r.opt.Slots-max(1, r.opt.Slots/4)) }

// unpark begins the next run of the owner of a run that has ended, if one waits for it. It waits
// for longer than all that are ready.
func (r *Runner) unpark(owner string) {
	if r.owned[owner]--; r.owned[owner] == 0 {
		delete(r.owned, owner)
	}
	for all := r.parked[owner]; len(all) > 0; all = r.parked[owner] {
		if r.parked[owner] = all[1:]; len(all) == 1 {
			delete(r.parked, owner)
		}
		if e := all[0]; !e.gone {
			r.ready = slices.Insert(r.ready, 0, e)
			return
		}
		r.pass(all[0])
	}
}

func (r *Runner) run(e *entry, d Due) {
	r.opt.Run(r.ctx, d, func() uint64 {
		r.mu.Lock()
		defer r.mu.Unlock()
		n := e.skipped
		e.skipped = 0
		return n
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	e.busy, e.resumed = false, false
	if t := r.chats[e.chat]; e.at.IsZero() && t != nil && t.entries[e.id] == e {
		delete(t.entries, e.id) // it was its last time
	}
	r.pass(e)
	r.unpark(e.owner)
	r.begin()
}

// pass gives the turn of a chat to the next that waits for it.
func (r *Runner) pass(e *entry) {
	t := r.chats[e.chat]
	if t == nil {
		return
	}
	t.taken = false
	for len(t.waiting) > 0 && !t.taken {
		next := t.waiting[0]
		t.waiting = t.waiting[1:]
		if !next.gone {
			t.taken = true
			r.ready = append(r.ready, next)
		}
	}
	r.leave(e.chat, t)
}
