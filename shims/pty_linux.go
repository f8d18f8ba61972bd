package shims

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/stream"
	"github.com/chatd/chatd/internal/sys"
)

// runPTY is "chatd-shim pty ROWS COLS -- COMMAND…". It exits as the command does: with its
// code, or by its signal.
func runPTY(args []string, errs io.Writer) int {
	if len(args) < 4 || args[2] != "--" {
		return fail(errs,
			chat.Invalid("cannot make a terminal: want ROWS COLS -- COMMAND"))
	}
	rows, err := strconv.ParseUint(args[0], 10, 16)
	cols, cerr := strconv.ParseUint(args[1], 10, 16)
	if err := errors.Join(err, cerr); err != nil {
		return fail(errs, chat.Invalid("cannot make a terminal: %w", err))
	}
	name, err := lookPath(args[3], os.Environ())
	if err != nil {
		return fail(errs, err)
	}
	cmd := exec.Command(name)
	cmd.Args = args[3:]
	// A run's signals go to every process of it: they end the command, and this process waits.
	caught := make(chan os.Signal, 1) // ignored signals would stay ignored in the command
	signal.Notify(caught, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	go func() {
		for range caught {
		}
	}()
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(rows), Cols: uint16(cols)})
	if err != nil {
		return fail(errs, &execError{args[3], err})
	}
	return relay(cmd, master)
}

// lookPath returns the path of a command as [execute] finds it.
func lookPath(name string, env []string) (string, error) {
	for _, c := range InPath(name, env) {
		if unix.Access(c, unix.X_OK) == nil {
			return c, nil
		}
	}
	if unix.Access(name, unix.X_OK) == nil && len(name) > 0 && name[0] == '/' {
		return name, nil
	}
	return "", &execError{name, unix.ENOENT}
}

// relay copies bytes until the command has ended and all its output is written. It does not wait
// for a descendant that still holds the terminal.
func relay(cmd *exec.Cmd, master *os.File) int {
	go func() { _ = input(os.Stdin, master) }()
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		_, _ = io.Copy(os.Stdout, master) // EIO ends it: the terminal is closed
	}()
	err := cmd.Wait()
	drain(master, printed)
	return exitAs(err)
}

// input reads frames until their end, or until an invalid one.
func input(from io.Reader, master *os.File) error {
	r := bufio.NewReaderSize(from, stream.FrameMax+3)
	var head [3]byte
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint16(head[1:]))
		if _, err := io.ReadFull(r, body); err != nil {
			return err
		}
		if err := take(head[0], body, master); err != nil {
			return err
		}
	}
}

// endOfText is the byte of Ctrl-D: VEOF in the kernel's default settings of a terminal.
const endOfText = 4

func take(kind byte, body []byte, master *os.File) error {
	switch {
	case kind == stream.FrameText:
		_, err := master.Write(body)
		return err
	case kind == stream.FrameEnd:
		_, err := master.Write([]byte{endOfText})
		return err
	case kind == stream.FrameSize && len(body) == 4:
		return pty.Setsize(master,
			&pty.Winsize{Rows: binary.BigEndian.Uint16(body), Cols: binary.BigEndian.Uint16(body[2:])})
	}
	return chat.Invalid("cannot use a frame of kind %q and %d bytes", kind, len(body))
}

// exitAs exits with the command's code, or by its signal.
func exitAs(err error) int {
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return 125
	}
	ws := exit.Sys().(syscall.WaitStatus)
	if !ws.Signaled() {
		return exit.ExitCode()
	}
	signal.Reset(ws.Signal())
	_ = unix.Kill(os.Getpid(), ws.Signal())
	time.Sleep(time.Second) // the signal ends this process
	return 128 + int(ws.Signal())
}

// unread returns how many bytes wait in the terminal.
func unread(master *os.File) (n int) {
	_ = sys.OnDescriptor(master, func(fd int) (err error) { // without a terminal nothing waits
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return n
}

// drain waits until the output is written, or until no more comes for a moment.
func drain(master *os.File, out <-chan struct{}) {
	for waiting := 1; waiting > 0; waiting = unread(master) {
		select {
		case <-out:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}
