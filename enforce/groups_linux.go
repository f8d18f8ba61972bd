package enforce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// groupsSocket is the name of the socket at which [Groups] gives the groups to the next enforcer.
const groupsSocket = "groups"

// groupsTimeout bounds an exchange of the groups.
const groupsTimeout = 5 * time.Second

// Groups holds the two fanotify(7) groups of an enforcer open, so that they outlive all of its
// processes: while a group is open somewhere, an open that it is asked about waits; once it is not,
// the open passes. Groups reads neither group. The next enforcer of the directory takes them over
// and answers what waits. The methods are safe for concurrent use.
type Groups struct {
	dir string

	mu       sync.Mutex
	listener *net.UnixListener // nil before the first enforcer answers
	held     []int             // perm and names; nil if none are held
}

// NewGroups is for the enforcer whose directory is dir. It holds nothing before [Groups.Follow].
func NewGroups(dir string) *Groups { return &Groups{dir: dir} }

// listen gives what is held to the next enforcer. The directory may be another than before.
func (g *Groups) listen() error {
	name := filepath.Join(g.dir, groupsSocket)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot replace the socket of the enforcer's groups: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return fmt.Errorf("cannot hold the enforcer's groups: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = g.closeListener()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listener = l
	go g.serve(l)
	return err
}

func (g *Groups) closeListener() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.listener == nil {
		return nil
	}
	return g.listener.Close()
}

// Close ends the listening and drops the groups.
func (g *Groups) Close() error {
	err := os.Remove(filepath.Join(g.dir, groupsSocket))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, g.closeListener(), g.Drop())
}

// Drop closes the groups. Without an enforcer, what they were asked about passes from then on.
func (g *Groups) Drop() error { return g.replace(nil) }

func (g *Groups) replace(with []int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.held
	g.held = with
	return sys.CloseAll(old)
}

// Follow takes the groups of the enforcer that runs, holds them, and returns nil when its worker
// has ended. It returns ctx's cause when that is done, and [ErrNoEnforcer] at once if none listens.
func (g *Groups) Follow(ctx context.Context) error {
	conn, err := dial(ctx, filepath.Join(g.dir, Socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := json.NewEncoder(conn).Encode(Order{Verb: Lend}); err != nil {
		return fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	fds, err := receiveGroups(conn)
	if err != nil {
		return err
	}
	if err := errors.Join(g.replace(fds), g.listen(), conn.SetDeadline(time.Time{})); err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, 1)) // it says no more: any result is the worker's end, or ctx's
	return context.Cause(ctx)
}

// ErrNoEnforcer means that no process of an enforcer is there.
var ErrNoEnforcer = errors.New("no enforcer listens")

func dial(ctx context.Context, socket string) (*net.UnixConn, error) {
	conn, err := (&net.Dialer{Timeout: groupsTimeout}).DialContext(ctx, "unix", socket)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", ErrNoEnforcer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	return conn.(*net.UnixConn), conn.SetDeadline(time.Now().Add(groupsTimeout))
}

// serve gives the groups to each enforcer that asks: root alone can enter the directory.
func (g *Groups) serve(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return // closed
		}
		g.mu.Lock()
		_ = sendGroups(conn, g.held...) // an enforcer that went away asks again
		g.mu.Unlock()
		_ = conn.Close()
	}
}

// heldGroups are the groups of an enforcer of the directory that ended; nil if nobody holds any.
func heldGroups(dir string) ([]int, error) {
	conn, err := dial(context.Background(), filepath.Join(dir, groupsSocket))
	if errors.Is(err, ErrNoEnforcer) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return receiveGroups(conn)
}

// sendGroups sends the groups, or the answer that there are none, as one message.
func sendGroups(conn *net.UnixConn, fds ...int) error {
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := conn.SetDeadline(time.Now().Add(groupsTimeout)); err != nil {
		return err
	}
	_, _, err := conn.WriteMsgUnix([]byte("{}\n"), oob, nil)
	return err
}

// receiveGroups reads what sendGroups sent, or the error of an enforcer that knows no such order.
func receiveGroups(conn *net.UnixConn) ([]int, error) {
	b, oob := make([]byte, maxAnswer), make([]byte, unix.CmsgSpace(4*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, fmt.Errorf("cannot receive the enforcer's groups: %w", err)
	}
	var a Answer
	fds, err := sys.Rights(oob[:oobn])
	switch jsonErr := json.NewDecoder(bytes.NewReader(b[:n])).Decode(&a); {
	case jsonErr != nil:
		err = errors.Join(err, jsonErr)
	case a.Error != "":
		err = errors.Join(err, errors.New(a.Error))
	case err == nil && len(fds) != 0 && len(fds) != 2:
		err = fmt.Errorf("%d descriptors came, want 2", len(fds))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot receive the enforcer's groups: %w", err), sys.CloseAll(fds))
	}
	return fds, nil
}
