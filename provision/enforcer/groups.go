package enforcer

import (
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

	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/sys"
)

// groups holds the two fanotify(7) groups of an enforcer open, so that they outlive all of its
// processes. While a group is open somewhere, an open that it is asked about waits; once it is not,
// the open passes. It reads neither group. The next enforcer of the directory takes them over and
// answers what waits.
type groups struct {
	dir string

	listener *net.UnixListener // nil before the first enforcer answers
	mu       sync.Mutex
	held     []int // perm and names; nil if none are held
}

// errNoEnforcer means that no process of an enforcer is there.
var errNoEnforcer = errors.New("no enforcer listens")

// follow takes the groups of the enforcer that runs, holds them, and returns nil when its worker
// has ended. It returns ctx's cause when that is done, and errNoEnforcer immediately if none
// listens.
func (g *groups) follow(ctx context.Context) error {
	conn, err := g.dial(ctx)
	if err != nil {
		return fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if err := json.NewEncoder(conn).Encode(orders.Order{Verb: orders.Lend}); err != nil {
		return fmt.Errorf("cannot ask for the enforcer's groups: %w", err)
	}
	fds, err := orders.ReceiveGroups(conn)
	if err != nil {
		return err
	}
	if err := errors.Join(g.replace(fds), g.listen(), conn.SetDeadline(time.Time{})); err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, 1)) // it says no more: any result is the worker's end, or ctx's
	return context.Cause(ctx)
}

// dial connects to the enforcer, which has GroupsTimeout to lend its groups.
func (g *groups) dial(ctx context.Context) (*net.UnixConn, error) {
	socket := filepath.Join(g.dir, orders.Socket)
	conn, err := (&net.Dialer{Timeout: orders.GroupsTimeout}).DialContext(ctx, "unix", socket)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", errNoEnforcer, err)
	}
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), conn.SetDeadline(time.Now().Add(orders.GroupsTimeout))
}

// listen gives what is held to the next enforcer. The directory may be another than before.
func (g *groups) listen() error {
	if err := g.removeSocket(); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: g.socket(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("cannot hold the enforcer's groups: %w", err)
	}
	l.SetUnlinkOnClose(false)
	err = g.closeListener()
	g.listener = l
	go g.serve(l)
	return err
}

func (g *groups) socket() string { return filepath.Join(g.dir, orders.GroupsSocket) }

func (g *groups) removeSocket() error {
	if err := os.Remove(g.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove the socket of the enforcer's groups: %w", err)
	}
	return nil
}

func (g *groups) closeListener() error {
	if g.listener == nil {
		return nil
	}
	return g.listener.Close()
}

// serve gives the groups to each enforcer that asks: root alone can enter the directory.
func (g *groups) serve(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return // closed
		}
		g.mu.Lock()
		_ = orders.SendGroups(conn, g.held...) // an enforcer that went away asks again
		g.mu.Unlock()
		_ = conn.Close()
	}
}

// drop closes the groups. Without an enforcer, what they were asked about passes from then on.
func (g *groups) drop() error { return g.replace(nil) }

func (g *groups) replace(with []int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.held
	g.held = with
	return sys.CloseAll(old)
}

// close ends the listening and drops the groups.
func (g *groups) close() error {
	return errors.Join(g.removeSocket(), g.closeListener(), g.drop())
}
