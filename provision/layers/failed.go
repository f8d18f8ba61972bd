package layers

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// ErrSlow is the error of a probe that did not end in its time.
var ErrSlow = errors.New("cannot wait any longer")

// ErrLeftOut is the error of a try of a layer that a test leaves out.
var ErrLeftOut = errors.New("left out for a test")

// NoRoom reports whether err means a full file system, a spent quota, or a read-only file
// system.
func NoRoom(err error) bool {
	return is(err, unix.ENOSPC, unix.EDQUOT, unix.EROFS)
}

// CannotTell reports whether err leaves open if a wall is in force: there was no room or time
// to try it, or the host has run out of descriptors, memory or tasks.
func CannotTell(err error) bool {
	return NoRoom(err) || is(err, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN,
		ErrSlow, os.ErrDeadlineExceeded, context.DeadlineExceeded, context.Canceled)
}

func is(err error, any ...error) bool {
	return slices.ContainsFunc(any, func(target error) bool { return errors.Is(err, target) })
}

// Failed returns the layer after a try that failed with err: off, with the fix, or unknown if
// CannotTell(err), with what to do about that.
func Failed(l chat.Layer, err error, fix string) chat.Layer {
	l.State, l.Probe, l.Fix = chat.LayerOff, err.Error(), fix
	if CannotTell(err) {
		l.State = chat.LayerUnknown
		l.Fix = "it is tried again every minute: wait until the host has time for it"
	}
	if NoRoom(err) {
		l.Fix = "it is tried again every minute: reap a chat, or make room, " +
			"or mount the file system read-write"
	}
	return l
}

// untried has every layer as unknown, for the time before the first probe.
func untried() Result {
	return every(func(l chat.Layer) chat.Layer {
		l.State, l.Probe, l.Fix = chat.LayerUnknown, "not tried yet", "wait a moment: chatd has just started"
		return l
	})
}

// Untried has every layer as err leaves it, which kept all of them from being tried.
func Untried(err error) Result {
	return every(func(l chat.Layer) chat.Layer { return Failed(l, err, "") })
}

func every(of func(chat.Layer) chat.Layer) Result {
	f := Result{layers: map[chat.LayerName]chat.Layer{}}
	for _, name := range chat.LayerNames() {
		f.keep(of(chat.Layer{Name: name, At: time.Now()}))
	}
	return f
}
