package archives

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
)

// FileVar is the variable that has the name of the file that the operator's command gets.
const FileVar = "CHATD_ARCHIVE_FILE"

// send gives the command each file of the draft, the manifest last. It has taken a file when it has
// read all of it and ends with 0: a pipeline in a shell hides that its first program failed.
func (s *Store) send(ctx context.Context, d *Draft) error {
	for _, file := range []string{
		partName(d.name, Home), partName(d.name, Chat), string(d.name) + manifestEnd,
	} {
		f, err := s.root.OpenFile(file+partEnd, os.O_RDONLY|noFollow, 0)
		if err != nil {
			return err
		}
		err = s.sendFile(ctx, file, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// maxComplaint bounds what is kept of the messages of a command, in bytes.
const maxComplaint = 1 << 10

// waitDelay is how long the command's children may hold its streams after it ended.
const waitDelay = 10 * time.Second

func (s *Store) sendFile(ctx context.Context, name string, in *os.File) error {
	cmd := exec.CommandContext(ctx, s.opt.Command[0], s.opt.Command[1:]...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", FileVar + "=" + name}
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = "/", in, waitDelay
	said := &firstBytes{max: maxComplaint}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:    true,
		Credential: &syscall.Credential{Uid: s.opt.UID, Gid: s.opt.GID},
	}
	cmd.Cancel = func() error { // with its children
		return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s did not take %s: %w: %s", chat.Quote(s.opt.Command[0]), name, err,
			chat.QuoteOutput(string(said.text)))
	}
	return readWhole(s.opt.Command[0], name, in)
}

// readWhole wants that the command has read its input to the end: it had the same description of the
// open file.
func readWhole(command, name string, in *os.File) error {
	at, err := in.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("cannot tell what %s read of %s: %w", chat.Quote(command), name, err)
	}
	if fi, err := in.Stat(); err != nil || at < fi.Size() {
		return errors.Join(err, fmt.Errorf("%s ended well and read %d bytes of %s only",
			chat.Quote(command), at, name))
	}
	return nil
}

// firstBytes keeps the first bytes of what is written.
type firstBytes struct {
	text []byte
	max  int
}

func (f *firstBytes) Write(b []byte) (int, error) {
	f.text = append(f.text, b[:min(len(b), f.max-len(f.text))]...)
	return len(b), nil
}
