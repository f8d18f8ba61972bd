package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/broker"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/confine"
	"github.com/chatd/chatd/journal"
	"github.com/chatd/chatd/runs"
	"github.com/chatd/chatd/terminal"
)

// What chatd-root hands over: the listener, the control socket, and this program.
const (
	frontListener = 3 + iota
	frontControl
	frontProgram
)

// runFront serves until ctx or chatd-root ends.
func runFront(ctx context.Context) error {
	l, c, err := handedOver()
	if err != nil {
		return err
	}
	_ = os.WriteFile("/proc/self/comm", []byte("chatd-front"), 0) // only what ps shows
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first, settled := make(chan broker.Settings, 1), make(chan struct{})
	settle := sync.OnceFunc(func() { close(settled) })
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
		cancel(errors.Join(errRootEnded, err))
	}()
	var s broker.Settings
	select {
	case s = <-first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := sameVersion(s); err != nil {
		return err
	}
	log := journal.New(os.Stderr)
	log.Debug("the front serves from now", "local time", time.Now().Local()) // which reads the time zone while it may
	done, err := confine.Front()
	if err != nil {
		return err
	}
	if len(done.Missing) > 0 {
		log.Warn("the front lacks a wall that this kernel does not have", "missing", done.Missing)
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
	err = serveFront(ctx, l, terminal.New(chats), c.NameOf, s, log)
	if cause := context.Cause(ctx); errors.Is(cause, errRootEnded) {
		err = errors.Join(err, cause)
	}
	return err
}

var errRootEnded = errors.New("chatd-root has ended")

// handedOver takes the descriptors.
func handedOver() (net.Listener, *broker.Client, error) {
	for _, fd := range []int{frontListener, frontControl} {
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || kind != unix.AF_UNIX {
			return nil, nil, fmt.Errorf("cannot serve: descriptor %d is no socket: chatd serve starts this: %w", fd, chat.ErrInvalid)
		}
	}
	f := os.NewFile(frontListener, "listener")
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, fmt.Errorf("cannot take over the listener: %w", err)
	}
	c, err := broker.NewClient(os.NewFile(frontControl, "control"))
	return l, c, errors.Join(err, unix.Close(frontProgram))
}
