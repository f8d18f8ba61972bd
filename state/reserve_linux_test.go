package state

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestAttackFull: on a disk that a chat has filled, new acts are refused with the reason; but every
// chat can be reaped, acts that have begun can record their outcome, and a restarted chatd opens
// its state.
func TestAttackFull(t *testing.T) {
	must.Root(t, "changes owners or mounts")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), reserveDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	must.Run(t, cmd)
}

const reserveDir = "CHATD_TEST_STATE_RESERVE"

// reapOnFullDisk runs in a mount namespace of its own, as fillDisk does.
func reapOnFullDisk(dir string) error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("state", dir, "tmpfs", 0, "size=8m,mode=0700"); err != nil {
		return err
	}
	o := Options{Dir: dir, AuditMax: 300 << 10, AuditKeep: 1}
	s, err := Open(o)
	if err != nil {
		return err
	}
	if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
		return err
	}
	var all []Record
	for i := range 40 {
		r, _, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(i)}, event("create", "intent"))
		if err := errors.Join(err, s.SetPhase(r.ID, chat.Ready, event("create", "done"))); err != nil {
			return err
		}
		all = append(all, r)
	}
	if err := fillUp(dir + "/junk"); err != nil {
		return err
	}
	for range 2000 { // refusals use no space
		for _, outcome := range []string{"intent", "denied"} {
			if err := s.Audit(event("run", outcome)); !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "reap a chat, or make room") {
				return fmt.Errorf("%s on a full disk: %v", outcome, err)
			}
		}
	}
	if _, _, err := s.Admit(chat.Spec{ExternalID: "more"}, event("create", "intent")); !errors.Is(err, chat.ErrBusy) {
		return fmt.Errorf("another chat: %v", err)
	}
	if err := s.AddSchedule(all[0].ID, Schedule{Schedule: chat.Schedule{ID: "s"}}, event("schedule", "done")); !errors.Is(err, chat.ErrBusy) {
		return fmt.Errorf("a schedule: %v", err)
	}
	for i, r := range all {
		for _, err := range []error{s.Audit(event("end", "intent")), s.Audit(event("run", "done")), s.SetPhase(r.ID, chat.Reaping, event("reap", "intent")), s.Forget(r.ID, event("reap", "done"))} {
			if err != nil {
				return fmt.Errorf("chat %d: %w", i, err)
			}
		}
		if i == 20 {
			if err := s.Close(); err != nil {
				return err
			}
			if s, err = Open(o); err != nil {
				return fmt.Errorf("started on a full disk: %w", err)
			}
		}
	}
	if _, err := s.VerifyAudit(); err != nil {
		return err
	}
	return errors.Join(s.Close(), os.Remove(dir+"/junk"))
}

// fillUp fills the disk to the last block.
func fillUp(junk string) error {
	f, err := os.Create(junk)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	return f.Close()
}
