package provision

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// errSlow is the error of a probe that did not end in its time.
var errSlow = errors.New("cannot wait any longer")

// noRoom reports whether err means a full file system, a spent quota, or a read-only file
// system.
func noRoom(err error) bool {
	return is(err, unix.ENOSPC, unix.EDQUOT, unix.EROFS)
}

// cannotTell reports whether err leaves open if the wall is in force: there was no room or time
// to try it, or the host has run out of descriptors, memory or tasks.
func cannotTell(err error) bool {
	return noRoom(err) || is(err, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN,
		errSlow, os.ErrDeadlineExceeded, context.DeadlineExceeded, context.Canceled)
}

func is(err error, any ...error) bool {
	return slices.ContainsFunc(any, func(target error) bool { return errors.Is(err, target) })
}

// failed returns the layer with err: off, or unknown if cannotTell(err).
func failed(l chat.Layer, err error, fix string) chat.Layer {
	l.State, l.Probe, l.Fix = chat.LayerOff, err.Error(), fix
	if cannotTell(err) {
		l.State, l.Fix = chat.LayerUnknown, "it is tried again every minute: wait until the host has time for it"
	}
	if noRoom(err) {
		l.Fix = "it is tried again every minute: reap a chat, or make room, or mount the file system read-write"
	}
	return l
}

// untried returns every layer as unknown, for the time before the first probe.
func untried() probed {
	p := probed{layers: map[chat.LayerName]chat.Layer{}, network: map[chat.Network]chat.Layer{}}
	for _, name := range chat.LayerNames() {
		p.keep(chat.Layer{Name: name, State: chat.LayerUnknown, Probe: "not tried yet", Fix: "wait a moment: chatd has just started", At: time.Now()})
	}
	return p
}
