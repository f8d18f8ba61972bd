package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// savedSession holds the data by which a later chatd finds the session again.
type savedSession struct {
	Version int         `json:"version"`
	Init    sys.Process `json:"leader"`
	Masked  *[]string   `json:"masked,omitempty"`
	saved
}

// savedFile lies in the session's directory; savedVersion is its version.
const (
	savedFile    = "session.json"
	savedVersion = 1
)

// Write writes what a later chatd needs to [Starter.Adopt] the session, in one step.
func (in *Session) Write(d Dir) error {
	b, err := json.Marshal(savedSession{savedVersion, in.Init.Process, in.Masked.Load(), in.saved})
	if err == nil {
		err = safefs.ReplaceFile(filepath.Join(d.Path(), savedFile), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot record session %s: %w", in.Chat, err)
	}
	return nil
}

// Adopt finds a session that an earlier chatd started. It requires the same boot and start time,
// the chat's uid and cgroup, and the same invocation of the unit.
func (s *Starter) Adopt(d Dir) (*Session, error) {
	f, err := readSaved(d)
	if err != nil {
		return nil, fmt.Errorf("cannot adopt session %s: %w", d.Chat, err)
	}
	if f.Init.Boot != s.opt.Boot || f.Init.Start == 0 {
		return nil, fmt.Errorf("cannot adopt session %s: it is of another boot", d.Chat)
	}
	init, err := sys.OpenProcess(f.Init)
	if err != nil {
		return nil, err
	}
	in := &Session{Chat: d.Chat, UID: d.UID, Init: init, saved: f.saved}
	in.Masked.Store(f.Masked)
	if err := errors.Join(s.checkInit(in), s.checkInvocation(in)); err != nil {
		return nil, errors.Join(err, init.Close())
	}
	return in, nil
}

func readSaved(d Dir) (f savedSession, err error) {
	b, err := os.ReadFile(filepath.Join(d.Path(), savedFile))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err == nil && f.Version != savedVersion {
		err = fmt.Errorf("%s is of version %d, and this chatd knows version %d alone: %w",
			savedFile, f.Version, savedVersion, chat.ErrUnsupported)
	}
	return f, err
}

func (s *Starter) checkInit(in *Session) error {
	pid := in.Init.PID
	uid, err := sys.UIDOf(pid)
	if err != nil || uid != in.UID {
		return fmt.Errorf("cannot adopt session %s: process %d is of uid %d, want %d: %w",
			in.Chat, pid, uid, in.UID, errors.Join(err, chat.ErrWrongPhase))
	}
	members, err := s.opt.Groups.Members(in.Chat)
	if err != nil {
		return err
	}
	if !slices.Contains(members, pid) {
		return fmt.Errorf("cannot adopt session %s: process %d is not in its cgroup", in.Chat, pid)
	}
	return nil
}

// ErrUnverified is the error of [Starter.Adopt] for a session that may be adopted later: systemd
// does not say which unit it is.
var ErrUnverified = errors.New("systemd does not say which unit it is")

// checkInvocation refuses a unit of the same name that this session's chatd did not start.
func (s *Starter) checkInvocation(in *Session) error {
	now, err := s.opt.Groups.Invocation(in.Chat)
	if errors.Is(err, chat.ErrBusy) {
		err = errors.Join(ErrUnverified, err)
		return fmt.Errorf("cannot adopt session %s yet: %w", in.Chat, err)
	}
	if err != nil {
		return err
	}
	if now != in.Invocation {
		return fmt.Errorf("cannot adopt session %s: its unit was started again: "+
			"invocation %s, want %s: %w", in.Chat, now, in.Invocation, chat.ErrWrongPhase)
	}
	return nil
}
