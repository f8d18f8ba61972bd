package layers

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// AddProc adds to the layer proc what holds outside a session. If the host's /proc is mounted
// with hidepid=invisible (proc(5)), a uid without a session, like uid, sees no other's processes
// either. Layers describe sessions, so this does not change the layer's state.
func (f Result) AddProc(uid uint32) {
	l := f.layers[chat.LayerProc]
	if !stands(l) {
		return
	}
	err := seesInit(uid)
	switch {
	case errors.Is(err, unix.ENOENT):
		l.By += ", and hidepid on the host"
		l.Probe += "; outside a session another user's process 1 is hidden"
	case err == nil:
		l.Probe += "; outside a session, on the host, every user sees all processes"
	default:
		l.Probe += "; outside a session: " + err.Error()
	}
	f.layers[l.Name] = l
}

// seesInit looks for process 1 as uid, in the /proc of process 1. A hardened unit may have a mount
// namespace with a /proc of its own.
func seesInit(uid uint32) error {
	proc, err := unix.Open("/proc/1/root/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot open the host's /proc: %w", err)
	}
	defer unix.Close(proc)
	return sys.AsUID(uid, func() error {
		var st unix.Stat_t
		return unix.Fstatat(proc, "1", &st, unix.AT_SYMLINK_NOFOLLOW)
	})
}
