package enforce

import (
	"errors"
	"fmt"
	"time"
)

// sighting is a file, and a name that it has or had.
type sighting struct {
	at    dirName
	child handle
}

// backlog holds the names that one session made or moved, until they are looked at. A name that
// is made again and again waits once.
type backlog struct {
	moves   [][2]dirName // of directories: from, to
	seen    []sighting
	waiting map[sighting]bool
	moving  map[[2]dirName]bool
	// taken and done count what came and what was looked at, since the session began.
	taken, done int
	queued      bool // for its turn
	noted       bool // for a later worker, that it waits
	over        bool // there was more than can be held
}

func (b *backlog) len() int { return len(b.moves) + len(b.seen) }

func (b *backlog) move(from, to dirName) {
	m := [2]dirName{from, to}
	if b.moving == nil {
		b.moving = map[[2]dirName]bool{}
	}
	if !b.moving[m] {
		b.moving[m] = true
		b.moves = append(b.moves, m)
	}
}

func (b *backlog) see(s sighting) {
	if b.waiting == nil {
		b.waiting = map[sighting]bool{}
	}
	if !b.waiting[s] {
		b.waiting[s] = true
		b.seen = append(b.seen, s)
		b.taken++
	}
}

// take takes the next n sightings at most.
func (b *backlog) take(n int) []sighting {
	some := b.seen[:min(n, len(b.seen))]
	b.seen = b.seen[len(some):]
	for _, s := range some {
		delete(b.waiting, s)
	}
	if len(b.seen) == 0 {
		b.seen = nil // the array grew with the largest backlog
	}
	return some
}

func (b *backlog) takeMoves() [][2]dirName {
	moves := b.moves
	b.moves, b.moving = nil, nil
	return moves
}

// enqueue adds to a session's backlog and queues the session for its turn. A session whose
// backlog is full is ended, so that the backlog is bounded and nobody waits for it for ever.
// Until the session has ended nothing is opened in it.
func (w *watch) enqueue(s *watched, add func(*backlog)) {
	if s.late.over {
		return
	}
	add(&s.late)
	if s.late.len() > w.most {
		s.late.over = true
		w.end(s.k, fmt.Errorf("%d names were made or changed before they could be looked at", s.late.len()))
		return
	}
	if !s.late.queued {
		s.late.queued = true
		w.turns = append(w.turns, s)
		select {
		case w.behind <- struct{}{}:
		default: // it is known already
		}
	}
}

// turnSize is how many names of one session are looked at before it is another's turn.
const turnSize = 64

// lookAt looks at some of what a session has made, and says whether more waits. Moves of
// directories come first, for an event names a directory that may have been moved since:
// also those that came while the directories were found. The caller holds the lock.
func (w *watch) lookAt(s *watched) (more bool, err error) {
	began := time.Now()
	defer func() { s.names.spend(time.Now(), time.Since(began)) }()
	if err := w.applyMoves(s); err != nil {
		return false, err
	}
	some := s.late.take(turnSize)
	names := make([][]string, len(some))
	known := make([]bool, len(some))
	for i, at := range some {
		names[i], known[i] = s.places(at.at)
	}
	if err := errors.Join(w.readNames(), w.applyMoves(s)); err != nil {
		return false, err
	}
	for i, at := range some {
		for _, p := range names[i] {
			w.note(s, p, at.child)
		}
		if !known[i] {
			w.noteAs(s, nil, at.child)
		}
	}
	s.late.done += len(some)
	return s.late.len() > 0, nil
}

// mostRounds bounds how often more moves are taken in before they are noted.
const mostRounds = 8

// applyMoves notes what directories were called before. Where they are is found as they are in
// each other now: what was moved around one meanwhile is in the queue by then, and is taken in
// before any of it is put together. Of a chat that moves on and on all is noted.
func (w *watch) applyMoves(s *watched) error {
	var pairs [][2]string
	for range mostRounds {
		moves := s.late.takeMoves()
		if len(moves) == 0 {
			break
		}
		for _, m := range moves {
			before, _ := s.places(m[0]) // where that is unknown, so is it to lookAt: the directory is closed
			after, _ := s.places(m[1])
			for _, old := range before {
				for _, now := range after {
					pairs = append(pairs, [2]string{now, old})
				}
			}
		}
		if err := w.readNames(); err != nil {
			return err
		}
	}
	w.rememberMoves(s, pairs, len(s.late.moves) > 0)
	return nil
}

// lookAtAll looks at all that a session had made when it is called: what comes before an
// open of its own. It lets go of the lock between, and where there is more than its share
// covers it waits: others' opens come first.
func (w *watch) lookAtAll(s *watched) error {
	upTo := s.late.taken
	for s.late.done < upTo || len(s.late.moves) > 0 {
		if _, err := w.lookAt(s); err != nil {
			return err
		}
		if s.late.done < upTo {
			w.mu.Unlock()
			time.Sleep(s.names.wait(time.Now()))
			w.mu.Lock()
		}
		if w.sessions[s.k.leader.chat] != s || s.late.over {
			return errors.New("the session has ended")
		}
	}
	return nil
}

// keepUp looks at what sessions have made, in turn, for ever.
func (w *watch) keepUp() error {
	for range w.behind {
		for {
			pause, err := w.turn()
			if err != nil {
				return err
			}
			if pause < 0 {
				break
			}
			time.Sleep(pause)
		}
	}
	return nil
}

// turn looks at a part of what one session has made, whose turn it is, and says when there
// may be another turn: below 0 when nobody waits. A session that has used its share is
// passed over, unless it has made so much that it would soon be more than can be held.
func (w *watch) turn() (pause time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause = -1
	for range w.turns {
		s := w.turns[0]
		w.turns = w.turns[1:]
		if w.sessions[s.k.leader.chat] != s {
			continue
		}
		wait := s.names.wait(time.Now())
		if wait > 0 && s.late.len() < w.most/2 {
			w.turns = append(w.turns, s)
			if pause < 0 || wait < pause {
				pause = wait
			}
			continue
		}
		more, err := w.lookAt(s)
		if more {
			w.turns = append(w.turns, s)
		}
		s.late.queued = more
		w.noteLate(s, more)
		return 0, err
	}
	return pause, nil
}
