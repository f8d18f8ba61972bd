package enforce

import (
	"errors"
	"fmt"
	"time"

	"github.com/chatd/chatd/filerules"
)

// nameEvent is a file and one name that it has or had.
type nameEvent struct {
	at    dirName
	child handle
}

// backlog holds the names that one session made or moved until they are processed.
type backlog struct {
	moves      waiting[[2]dirName] // of directories: from, to
	events     waiting[nameEvent]
	done       int  // events that were processed, since the session began
	queued     bool // for its turn
	recorded   bool // for a later worker, that it waits
	overflowed bool // there was more than can be held
}

func (b *backlog) len() int { return len(b.moves.all) + len(b.events.all) }

// waiting is a queue in which a value that is added repeatedly waits once.
type waiting[T comparable] struct {
	all   []T
	there map[T]bool
}

func (w *waiting[T]) add(v T) {
	if w.there == nil {
		w.there = map[T]bool{}
	}
	if !w.there[v] {
		w.there[v] = true
		w.all = append(w.all, v)
	}
}

// take takes the next n at most.
func (w *waiting[T]) take(n int) []T {
	some := w.all[:min(n, len(w.all))]
	w.all = w.all[len(some):]
	for _, v := range some {
		delete(w.there, v)
	}
	if len(w.all) == 0 {
		*w = waiting[T]{} // the array and the map grew with the largest backlog
	}
	return some
}

// enqueue adds to a session's backlog and queues the session for its turn. A session whose backlog
// overflows is killed, and all its opens are refused until it has ended.
func (w *watch) enqueue(s *watchedSession, add func(*backlog)) {
	if s.backlog.overflowed {
		return
	}
	add(&s.backlog)
	if s.backlog.len() > w.maxBacklog {
		s.backlog.overflowed = true
		w.end(s.session,
			fmt.Errorf("%d names were made or changed before they could be looked at", s.backlog.len()))
		return
	}
	if !s.backlog.queued {
		s.backlog.queued = true
		w.turns = append(w.turns, s)
		select {
		case w.waiting <- struct{}{}:
		default: // already signalled
		}
	}
}

// turnSize is how many names of one session are processed before the turn of another.
const turnSize = 64

// process handles part of a session's backlog and reports whether more waits. It applies moves of
// directories first, because an event names a directory that may have been moved since. It applies
// them again after it has found the directories. The caller holds the lock.
func (w *watch) process(s *watchedSession) (more bool, err error) {
	began := time.Now()
	defer func() { s.names.spend(time.Now(), time.Since(began)) }()
	if err := w.applyMoves(s); err != nil {
		return false, err
	}
	some := s.backlog.events.take(turnSize)
	names := make([][]string, len(some))
	known := make([]bool, len(some))
	for i, at := range some {
		names[i], known[i] = s.pathsOf(at.at)
	}
	if err := errors.Join(w.readNames(), w.applyMoves(s)); err != nil {
		return false, err
	}
	for i, at := range some {
		for _, p := range names[i] {
			w.recordName(s, p, at.child)
			known[i] = known[i] && (s.denied[at.at.dir].class != filerules.Closed || s.isException(p))
		}
		if !known[i] { // or the directory has a record, whatever it is called
			w.recordDenied(s, nil, at.child)
		}
	}
	s.backlog.done += len(some)
	return s.backlog.len() > 0, nil
}

// maxRounds bounds the rounds in which applyMoves reads further moves.
const maxRounds = 8

// applyMoves records the earlier names of directories. It finds each directory where it is now.
// Moves that happen meanwhile are in the queue by then, and applyMoves reads them before it records
// anything. If a chat never stops moving, applyMoves records every pair.
func (w *watch) applyMoves(s *watchedSession) error {
	var pairs [][2]string
	for range maxRounds {
		moves := s.backlog.moves.take(s.backlog.len())
		if len(moves) == 0 {
			break
		}
		for _, m := range moves {
			before, _ := s.pathsOf(m[0]) // where that is unknown, so is it to lookAt: the directory is closed
			after, _ := s.pathsOf(m[1])
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
	w.recordMoves(s, pairs, len(s.backlog.moves.all) > 0)
	return nil
}

// processAll processes the whole backlog that a session has when it is called: those events precede
// the session's open. It unlocks between turns, and a session that has used its share waits, so
// that the opens of others come first.
func (w *watch) processAll(s *watchedSession) error {
	upTo := s.backlog.done + len(s.backlog.events.all)
	for s.backlog.done < upTo || len(s.backlog.moves.all) > 0 {
		if _, err := w.process(s); err != nil {
			return err
		}
		if s.backlog.done < upTo {
			w.mu.Unlock()
			time.Sleep(s.names.wait(time.Now()))
			w.mu.Lock()
		}
		if w.sessions[s.session.initProc.chat] != s || s.backlog.overflowed {
			return errors.New("the session has ended")
		}
	}
	return nil
}

// processBacklogs processes the sessions' backlogs in turn. It returns only on an error.
func (w *watch) processBacklogs() error {
	for range w.waiting {
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

// turn processes part of the next session's backlog. pause is the time until another turn is due;
// it is negative when no session waits. turn skips a session that has used its share, unless its
// backlog is half full.
func (w *watch) turn() (pause time.Duration, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause = -1
	for range w.turns {
		s := w.turns[0]
		w.turns = w.turns[1:]
		if w.sessions[s.session.initProc.chat] != s {
			continue
		}
		wait := s.names.wait(time.Now())
		if wait > 0 && s.backlog.len() < w.maxBacklog/2 {
			w.turns = append(w.turns, s)
			if pause < 0 || wait < pause {
				pause = wait
			}
			continue
		}
		more, err := w.process(s)
		if more {
			w.turns = append(w.turns, s)
		}
		s.backlog.queued = more
		w.recordBacklog(s, more)
		return 0, err
	}
	return pause, nil
}
