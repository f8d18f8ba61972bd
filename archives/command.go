package archives

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
)

// FileVar is the variable that has the name of the file that the operator's command gets.
const FileVar = "CHATD_ARCHIVE_FILE"

// send gives the command each file of the draft, the manifest last. It has taken a file when it
// ends with 0.
func (s *Store) send(ctx context.Context, d *Draft, manifest []byte) error {
	for _, p := range []Part{Home, Chat} {
		f, err := d.Read(p)
		if err != nil {
			return err
		}
		err = s.sendFile(ctx, partName(d.name, p), f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return s.sendFile(ctx, string(d.name)+manifestEnd, bytes.NewReader(manifest))
}

// maxComplaint bounds what is kept of the messages of a command, in bytes.
const maxComplaint = 1 << 10

// waitDelay is how long the command's children may hold its streams after it ended.
const waitDelay = 10 * time.Second

func (s *Store) sendFile(ctx context.Context, name string, in io.Reader) error {
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
