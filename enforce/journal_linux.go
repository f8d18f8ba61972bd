package enforce

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// journalLine is one record of a session: a file that had a denied name, or an earlier name of a
// directory. A later worker reads them all.
type journalLine struct {
	Child []byte          `json:"child,omitempty"`
	Class filerules.Class `json:"class,omitempty"`
	By    []byte          `json:"by,omitempty"`
	Now   string          `json:"now,omitempty"`
	Old   string          `json:"old,omitempty"`
}

func (w *watch) journalFile(id chat.ID) string { return filepath.Join(w.dir, string(id)+".known") }

// backlogFile exists while the session has a backlog, which is in memory alone: a worker that takes
// the session up later would not know of it.
func (w *watch) backlogFile(id chat.ID) string { return w.journalFile(id) + ".late" }

// recordBacklog makes that file, or removes it.
func (w *watch) recordBacklog(s *watchedSession, late bool) {
	if late == s.backlog.recorded {
		return
	}
	var err error
	if file := w.backlogFile(s.session.initProc.chat); late {
		err = os.WriteFile(file, nil, 0o600)
	} else {
		err = os.Remove(file)
	}
	if s.backlog.recorded = late; err != nil {
		w.end(s.session, fmt.Errorf("cannot save the backlog of the session: %w", err))
	}
}

// openJournal opens the journal of a session, which is not in its mount namespace, and
// takes in what it holds.
func (w *watch) openJournal(s *watchedSession) error {
	var f *os.File
	late := false
	err := sys.InOwnNamespace(func() (err error) {
		_, missing := os.Lstat(w.backlogFile(s.session.initProc.chat))
		late = missing == nil
		f, err = os.OpenFile(w.journalFile(s.session.initProc.chat), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot open the journal of a session: %w", err)
	}
	s.journal = f
	if late {
		return errors.New("a worker ended that had not looked at all that the session made")
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var l journalLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // the worker was killed during the write and answered no open after it
		}
		if l.Child != nil {
			remember(s.denied, handle(l.Child), denial{l.Class, string(l.By)})
		} else {
			s.moved[l.Now] = append(s.moved[l.Now], l.Old)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("cannot read the journal of a session: %w", err)
	}
	return nil
}

// write appends a line before any answer depends on it. The line survives this process and not a
// reboot, like the session itself.
func (w *watch) write(s *watchedSession, l journalLine) {
	b, err := json.Marshal(l)
	if err == nil {
		_, err = s.journal.Write(fmt.Appendf(nil, "\n%s\n", b))
		sys.Failpoint("journal.written")
	}
	if err != nil {
		w.end(s.session, fmt.Errorf("cannot save what it moved: %w", err))
	}
}

// rewrite replaces the journal by what is in memory, when other rules have begun to apply.
func (w *watch) rewrite(s *watchedSession) error {
	if err := s.journal.Truncate(0); err != nil {
		return fmt.Errorf("cannot begin the journal of a session again: %w", err)
	}
	sys.Failpoint("journal.emptied")
	for h, d := range s.denied {
		w.write(s, journalLine{Child: []byte(h), Class: d.class, By: []byte(d.by)})
	}
	for now, all := range s.moved {
		for _, old := range all {
			w.write(s, journalLine{Now: now, Old: old})
		}
	}
	return nil
}
