package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// The words of the handshake; see the package documentation.
const (
	wordHere    = "here"
	wordFiles   = "files"
	wordMain    = "main"
	wordMainSet = "settled"
)

// Handshake is the socket between chatd and the first process of a unit, which has its
// other end as stdin. systemd passes no other descriptors before version 256.
// It is closed before any code of the chat runs: a socket made here keeps root's uid.
type Handshake struct {
	ours   *net.UnixConn
	theirs *os.File // whose reads block
	// first is the sender of the last message, as the kernel names it.
	first int
}

func newHandshake() (*Handshake, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make a socket for a unit: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "handshake")
	err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	ours := os.NewFile(uintptr(fds[0]), "handshake")
	var conn net.Conn
	if err == nil {
		conn, err = net.FileConn(ours)
	}
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot learn who is at a unit's socket: %w", err), theirs.Close())
	}
	return &Handshake{ours: conn.(*net.UnixConn), theirs: theirs}, nil
}

// Close ends the handshake, and with it a unit that is not settled.
func (d *Handshake) Close() {
	d.ours.Close()
	d.theirs.Close()
}

// await reads one message, which must be word. Any other message is the unit's error.
func (d *Handshake) await(word string, timeout time.Duration) error {
	said, err := d.hear(timeout)
	if err == nil && said != word {
		err = wentWrong(said)
	}
	return err
}

// complaint returns an unread message of the first process as an error, if there is one.
func (d *Handshake) complaint() error {
	said, err := d.hear(10 * time.Millisecond)
	if err != nil || said == "" {
		return nil
	}
	return wentWrong(said)
}

func wentWrong(said string) error { return fmt.Errorf("its first process says %.400q", said) }

// hear reads one message, and records its sender (SCM_CREDENTIALS, unix(7)).
func (d *Handshake) hear(timeout time.Duration) (string, error) {
	if err := d.ours.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return "", fmt.Errorf("cannot wait for the first process: %w", err)
	}
	buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, oobn, _, _, err := d.ours.ReadMsgUnix(buf, oob)
	if err != nil {
		return "", fmt.Errorf("cannot hear from the first process: %w", err)
	}
	d.first = senderOf(oob[:oobn])
	return string(buf[:n]), nil
}

// senderOf is the process that the kernel names as the sender; 0 if it names none.
func senderOf(oob []byte) int {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if c, err := unix.ParseUnixCredentials(&m); err == nil {
			return int(c.Pid)
		}
	}
	return 0
}

// SetMainPID makes pid, which must be of the session and as good as PID 1's own child, the unit's main
// process, so that the unit lives exactly as long as the session. Until then the process that
// StartSession started is. It is [chat.ErrBusy] where systemd does not hear of it in time.
func (d *Handshake) SetMainPID(pid int) error {
	if err := d.say(wordMain + " " + strconv.Itoa(pid)); err != nil {
		return err
	}
	if err := d.await(wordMainSet, startTime); err != nil {
		return fmt.Errorf("systemd did not hear which process stays: %w: %w", err, chat.ErrBusy)
	}
	return nil
}

func (d *Handshake) say(word string) error {
	if _, err := d.ours.Write([]byte(word)); err != nil {
		return fmt.Errorf("cannot tell the first process to go on: %w", err)
	}
	return nil
}

// hand sends files in one message (SCM_RIGHTS, unix(7)).
func (d *Handshake) hand(files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if _, _, err := d.ours.WriteMsgUnix([]byte(wordFiles), unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("cannot hand %d files over: %w", len(files), err)
	}
	return nil
}
