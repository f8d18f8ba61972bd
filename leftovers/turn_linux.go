package leftovers

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/scan"
	"github.com/chatd/chatd/sys"
	"github.com/chatd/chatd/trees"
)

// Walker says how the process of a turn is started.
type Walker struct {
	// Program is chatd-shim, and Name what it is called as.
	Program, Name string
	// UID is one that owns nothing.
	UID uint32
	// Namespace is the mount namespace to walk; empty is this process's. A unit of systemd's has
	// one in which /tmp and /home are not those of the host.
	Namespace string
	// Grace is how long after the end of its time a turn may go on; 0 is a minute.
	Grace time.Duration
}

func (w Walker) grace() time.Duration { return cmp.Or(w.Grace, turnGrace) }

// turnGrace is the default of Walker.Grace; endTimeout is how long a process that was killed is
// waited for.
const (
	turnGrace  = time.Minute
	endTimeout = 10 * time.Second
)

// errStuck is of a turn that does not end, not even by SIGKILL: a disk or a server hangs.
var errStuck = errors.New("the scan hangs")

// turn is one turn: it passes finds on until the process says that it is done, and calls release
// once the process is gone. Where that did not say how far it came, the end has the position that
// it told last. The error of a turn that was killed for its time is [context.DeadlineExceeded].
func (w Walker) turn(
	ctx context.Context, req scan.Request, find func(scan.Find), release func(),
) (scan.End, error) {
	cmd, stdin, stdout, err := w.begin(req)
	if err != nil {
		release()
		return scan.End{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.Seconds)*time.Second+w.grace())
	defer cancel()
	defer context.AfterFunc(ctx, func() { _, _ = cmd.Process.Kill(), stdout.Close() })()
	end, err := order(stdin, stdout, req, find)
	if end.At == nil && !end.Complete {
		end.At = req.From
	}
	if end.Error != "" {
		err = errors.New(end.Error)
	} else if err != nil {
		err = errors.Join(err, ctx.Err())
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Process.Kill() // it has said its last
		_ = cmd.Wait()         // closes the pipes
		release()
		close(ended)
	}()
	select {
	case <-ended:
		return end, err
	case <-time.After(endTimeout):
		return end, errStuck
	}
}

// begin starts the process.
func (w Walker) begin(req scan.Request) (*exec.Cmd, io.WriteCloser, io.ReadCloser, error) {
	if err := trees.CheckProgram(w.Program); err != nil {
		return nil, nil, nil, fmt.Errorf("cannot start the scan: %w", err)
	}
	program, err := os.Open(w.Program)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("cannot start the scan: %w", err)
	}
	defer program.Close()
	cmd := w.command(program)
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, w.start(cmd)); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: chatd needs the capability CAP_DAC_READ_SEARCH", err)
		}
		return nil, nil, nil, fmt.Errorf("cannot start the scan: %w", err)
	}
	return cmd, stdin, stdout, nil
}

// order says what is to be done, and reads what was.
func order(
	stdin io.Writer, stdout io.Reader, req scan.Request, find func(scan.Find),
) (end scan.End, err error) {
	text, err := json.Marshal(req)
	if err == nil {
		_, err = stdin.Write(append(text, '\n'))
	}
	if err != nil {
		return end, fmt.Errorf("cannot tell the scan what to do: %w", err)
	}
	return readTurn(stdout, find)
}

// command is the command by its descriptor: its name may not be there in the other namespace.
func (w Walker) command(program *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/fd/3", "scan")
	cmd.Args[0], cmd.ExtraFiles = w.Name, []*os.File{program}
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1", "GOMEMLIMIT=64MiB"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Credential: &syscall.Credential{Uid: w.UID, Gid: w.UID},
		AmbientCaps: []uintptr{unix.CAP_DAC_READ_SEARCH},
	}
	return cmd
}

// start starts the process in the namespace.
func (w Walker) start(cmd *exec.Cmd) error {
	if w.Namespace == "" {
		return cmd.Start()
	}
	ns, err := os.Open(w.Namespace)
	if err != nil {
		return err
	}
	return errors.Join(sys.InMountNamespace(ns, cmd.Start), ns.Close())
}

// readTurn reads the lines of a turn.
func readTurn(r io.Reader, find func(scan.Find)) (end scan.End, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, scan.MaxLine)
	for lines.Scan() {
		var l scan.Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return end, fmt.Errorf("cannot read what the scan says: %w", err)
		}
		switch {
		case l.At != nil:
			end.At = l.At
		case l.Find != nil:
			find(*l.Find)
		case l.End != nil:
			return *l.End, nil
		}
	}
	return end, errors.Join(lines.Err(), errors.New("the scan did not end by itself"))
}
