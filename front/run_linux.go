package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/internal/broker"
	"github.com/chatd/chatd/internal/journal"
)

// The descriptors that chatd-root hands over: the listener, the control socket, and this program.
const (
	listenerFD = 3 + iota
	controlFD
	programFD
)

var errRootEnded = errors.New("chatd-root has ended")

// Run serves until ctx or chatd-root ends. version is that of this program: a front of another
// version than its chatd-root's is [chat.ErrUnsupported]. Without the descriptors of chatd-root
// the error is [chat.ErrInvalid].
func Run(ctx context.Context, version string) error {
	l, c, err := takeOver()
	if err != nil {
		return err
	}
	_ = os.WriteFile("/proc/self/comm", []byte("chatd-front"), 0) // only what ps shows
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, settled := follow(c, cancel)
	var s broker.Settings
	select {
	case s = <-first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := sameVersion(s, version); err != nil {
		return err
	}
	log, err := giveUpRights()
	if err != nil {
		return err
	}
	chats, err := runs.Open(ctx, c, runs.Options{Log: log})
	if err != nil {
		return err
	}
	defer chats.Close()
	if err := c.Ready(); err != nil {
		return err
	}
	go func() {
		select {
		case <-settled:
			chats.Begin()
		case <-ctx.Done():
		}
	}()
	o := serverOptions(RenderTerminals(chats), c.NameOf, s, version, log)
	err = serve(ctx, l, o, s.Grace)
	if cause := context.Cause(ctx); errors.Is(cause, errRootEnded) {
		err = errors.Join(err, cause)
	}
	return err
}

// takeOver takes the descriptors, and closes that of this program.
func takeOver() (net.Listener, *broker.Client, error) {
	for _, fd := range []int{listenerFD, controlFD} {
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err != nil || kind != unix.AF_UNIX {
			return nil, nil, chat.Invalid("cannot serve: descriptor %d is no socket: "+
				"chatd serve starts this", fd)
		}
	}
	f := os.NewFile(listenerFD, "listener")
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("cannot take over the listener: %w", err)
	}
	c, err := broker.NewClient(os.NewFile(controlFD, "control"))
	return l, c, errors.Join(err, unix.Close(programFD))
}

// follow reads the settings of chatd-root until that ends, which ends the front too. The first
// come on first; settled is closed when chatd-root has tried its walls.
func follow(
	c *broker.Client, end context.CancelCauseFunc,
) (_ <-chan broker.Settings, settled <-chan struct{}) {
	first, tried := make(chan broker.Settings, 1), make(chan struct{})
	settle := sync.OnceFunc(func() { close(tried) })
	go func() {
		err := c.Settings(func(s broker.Settings) error {
			select {
			case first <- s:
			default: // serving already: what has changed
			}
			if s.Settled {
				settle()
			}
			return journal.SetLevel(s.LogLevel)
		})
		end(errors.Join(errRootEnded, err))
	}()
	return first, tried
}

// sameVersion refuses to serve for a chatd-root of another version, as half an upgrade leaves.
func sameVersion(s broker.Settings, version string) error {
	if s.Version != version {
		return fmt.Errorf("cannot serve for chatd-root of version %s: this is %s: install both: %w",
			chat.Quote(s.Version), version, chat.ErrUnsupported)
	}
	return nil
}

// giveUpRights confines this process, and returns its log.
func giveUpRights() (*slog.Logger, error) {
	log := journal.New(os.Stderr)
	// This reads the time zone while it may.
	log.Debug("the front serves from now", "local time", time.Now().Local())
	missing, err := confine()
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		log.Warn("the front lacks a wall that this kernel does not have", "missing", missing)
	}
	return log, nil
}
