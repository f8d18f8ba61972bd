package session

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/safefs"
)

// Launch starts [Starter.Bubblewrap]'s command in the chat's leaf: as a child, or, where systemd
// owns the sessions, behind chatd-shim enter.
func (s *Starter) Launch(p Spec, bwrap *exec.Cmd, b *Files) (err error) {
	cmd := bwrap
	if s.opt.Units {
		if cmd, err = s.enterCommand(p.View, bwrap, b); err != nil {
			return err
		}
	}
	return s.opt.Groups.StartPrepared(p.Chat, "session", cmd, b.prepare)
}

// enterCommand wraps bubblewrap for systemd, which passes no descriptors. chatd-shim enter gets
// them later: first the entry that describes its task, then the rest.
func (s *Starter) enterCommand(v plan.View, bwrap *exec.Cmd, b *Files) (*exec.Cmd, error) {
	if err := bwrap.Err; err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	streams := []*os.File{bwrap.Stdout.(*os.File), bwrap.Stderr.(*os.File)} // of Bubblewrap's callers
	stdin, hasStdin := bwrap.Stdin.(*os.File)
	if hasStdin {
		streams = append([]*os.File{stdin}, streams...)
	}
	entry := plan.Entry{Argv: append([]string{bwrap.Path}, bwrap.Args[1:]...), Stdin: hasStdin}
	if err := s.askForOwn(v, &entry); err != nil {
		return nil, err
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("cannot write the entry: %w", err)
	}
	entryFile, err := sys.MemFile("entry", text)
	if err != nil {
		return nil, err
	}
	b.mine = append(b.mine, entryFile)
	cmd := exec.Command(s.opt.Shim, "enter")
	cmd.ExtraFiles = slices.Concat([]*os.File{entryFile}, bwrap.ExtraFiles, streams)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: bwrap.SysProcAttr.Credential}
	return cmd, nil
}

// askForOwn names by device and inode, which cannot be forged, the directories that PAM must have
// mounted. It sets the mode of their parents to 0, which pam_namespace(8) requires.
func (s *Starter) askForOwn(v plan.View, e *plan.Entry) error {
	if v.LeavesOut(chat.LayerTmp) {
		return nil
	}
	for path, parent := range map[string]string{"/tmp": s.opt.Tmp, "/var/tmp": s.opt.VarTmp} {
		if err := safefs.MakeRoot(parent, 0); err != nil {
			return err
		}
		var st unix.Stat_t
		dir := filepath.Join(parent, v.User)
		if err := unix.Lstat(dir, &st); err != nil {
			return fmt.Errorf("cannot look at %s: %w", dir, err)
		}
		e.Own = append(e.Own, plan.OwnMount{Path: path, Dev: st.Dev, Ino: st.Ino})
	}
	var shm unix.Stat_t
	if err := unix.Stat("/dev/shm", &shm); err != nil {
		return fmt.Errorf("cannot look at /dev/shm: %w", err)
	}
	e.HostShm = shm.Dev
	return nil
}
