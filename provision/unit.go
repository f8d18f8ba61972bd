package provision

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// tmpMode is the mode of the parents of the private /tmp trees. bubblewrap, which runs as the
// chat, must pass through them. pam_namespace(8) mounts the trees itself and demands mode 0 of
// their parents.
func (m *Manager) tmpMode() os.FileMode {
	if m.units {
		return 0
	}
	return 0o711
}

// startInGroup starts bubblewrap in the chat's leaf: as a child, or, where systemd
// owns the sessions, behind chatd-shim enter.
func (m *Manager) startInGroup(rec state.Record, bwrap *exec.Cmd, b *boundFiles) error {
	if !m.units {
		return m.groups.StartPrepared(rec.ID, "session", bwrap, b.prepare)
	}
	cmd, err := m.enterCommand(rec, bwrap, b)
	if err != nil {
		return err
	}
	return m.groups.StartPrepared(rec.ID, "session", cmd, b.prepare)
}

// enterCommand wraps bubblewrap for systemd, which passes no descriptors. chatd-shim enter gets
// them later: first the entry that describes its task, then the rest.
func (m *Manager) enterCommand(rec state.Record, bwrap *exec.Cmd, b *boundFiles) (*exec.Cmd, error) {
	if err := bwrap.Err; err != nil {
		return nil, fmt.Errorf("cannot start bubblewrap: %w", err)
	}
	stdin, hasStdin := bwrap.Stdin.(*os.File)
	entry := shims.Entry{Argv: append([]string{bwrap.Path}, bwrap.Args[1:]...), Stdin: hasStdin}
	if err := m.askForOwn(rec, &entry); err != nil {
		return nil, err
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return nil, fmt.Errorf("cannot write the entry: %w", err)
	}
	note, err := sys.MemFile("entry", text)
	if err != nil {
		return nil, err
	}
	b.mine = append(b.mine, note)
	stdout, ok := bwrap.Stdout.(*os.File)
	stderr, ok2 := bwrap.Stderr.(*os.File)
	if !ok || !ok2 {
		return nil, errors.New("cannot start bubblewrap: its output is no file")
	}
	cmd := exec.Command(m.paths.shim, "enter")
	cmd.ExtraFiles = append([]*os.File{note}, bwrap.ExtraFiles...)
	if entry.Stdin {
		cmd.ExtraFiles = append(cmd.ExtraFiles, stdin)
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, stdout, stderr)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: bwrap.SysProcAttr.Credential}
	return cmd, nil
}

// askForOwn names the directories that PAM must have mounted by device and inode, which no name
// can fake. It sets the mode of their parents, without which pam_namespace refuses.
func (m *Manager) askForOwn(rec state.Record, e *shims.Entry) error {
	if m.without(chat.LayerTmp) {
		return nil
	}
	for path, parent := range map[string]string{"/tmp": m.paths.tmp, "/var/tmp": m.paths.varTmp} {
		if err := trees.MakeRoot(parent, m.tmpMode()); err != nil {
			return err
		}
		var st unix.Stat_t
		dir := filepath.Join(parent, rec.ID.User())
		if err := unix.Lstat(dir, &st); err != nil {
			return fmt.Errorf("cannot look at %s: %w", dir, err)
		}
		e.Own = append(e.Own, shims.OwnMount{Path: path, Dev: st.Dev, Ino: st.Ino})
	}
	var shm unix.Stat_t
	if err := unix.Stat("/dev/shm", &shm); err != nil {
		return fmt.Errorf("cannot look at /dev/shm: %w", err)
	}
	e.HostShm = shm.Dev
	return nil
}
