package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/enforce/masks"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// savedSession is the state from which a later worker resumes a session.
type savedSession struct {
	Order       orders.Order    `json:"order"`
	Mounts      []int           `json:"mounts"`          // bubblewrap's
	StartMasks  []int           `json:"masks,omitempty"` // bubblewrap's masks
	Masks       []masks.Mount   `json:"covers"`
	LinkTargets pathclass.Links `json:"led"`
}

func (e *enforcer) file(id chat.ID) string {
	return filepath.Join(e.dir, "sessions", string(id)+".json")
}

// save writes a session's state for a later worker. The caller holds the session's lock.
func (e *enforcer) save(s *session) error {
	f := savedSession{Order: s.order, Mounts: s.baseIDs, StartMasks: s.startMaskIDs,
		Masks: slices.Concat(s.masks, s.hiddenMasks), LinkTargets: s.linkTargets}
	b, err := json.Marshal(f)
	if err == nil {
		err = os.WriteFile(e.file(s.initProc.chat)+".new", b, 0o600)
	}
	if err == nil {
		sys.Failpoint("rules.saving")
		err = os.Rename(e.file(s.initProc.chat)+".new", e.file(s.initProc.chat))
	}
	if err != nil {
		return fmt.Errorf("cannot save a session: %w", err)
	}
	return nil
}

// resume resumes the sessions of an earlier worker. Their opens wait meanwhile. A session that
// cannot be resumed is killed.
func (e *enforcer) resume() error {
	files, err := os.ReadDir(filepath.Join(e.dir, "sessions"))
	if err != nil {
		return fmt.Errorf("cannot find the sessions: %w", err)
	}
	if len(files) == 0 {
		return nil
	}
	// Before the first question is read: its descriptor could reuse a lost number. A journal is
	// made before the first question about a session, and its file before the session begins.
	if err := denyLost(e.watch.permFD); err != nil {
		return err
	}
	sys.Failpoint("takeup.refused")
	for _, file := range files {
		id, ext, _ := strings.Cut(file.Name(), ".")
		b, err := os.ReadFile(e.file(chat.ID(id)))
		if errors.Is(err, os.ErrNotExist) {
			e.removeSaved(chat.ID(id)) // of a session that never began, or that was let go of
			continue
		}
		if ext != "json" {
			continue
		}
		var f savedSession
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil {
			return fmt.Errorf("cannot take a session up: %w", err)
		}
		e.resumeSession(f)
	}
	return nil
}

func (e *enforcer) resumeSession(f savedSession) {
	s, _, err := e.session(f.Order)
	if err != nil {
		e.removeSaved(f.Order.Chat) // it has ended
		return
	}
	sys.Failpoint("takeup.session")
	s.baseIDs, s.startMaskIDs, s.masks = f.Mounts, f.StartMasks, f.Masks
	s.resumed, s.linkTargets = true, f.LinkTargets
	if err = e.apply(s, &f.Order); err != nil {
		e.end(s, err)
	}
}
