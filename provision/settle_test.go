package provision

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// TestDoctorWithoutRoom: where there is no room to try anything nothing is said to be missing.
func TestDoctorWithoutRoom(t *testing.T) {
	h := withoutRoom(Options{}, fmt.Errorf("cannot make a directory: %w", unix.ENOSPC))
	if len(h.Layers) != len(chat.LayerNames()) || len(h.Missing) != 0 {
		t.Errorf("%+v", h)
	}
	for _, l := range h.Layers {
		if l.State != chat.LayerUnknown || l.Fix == "" {
			t.Errorf("%+v", l)
		}
	}
}

// TestFailed: an error that says nothing about a wall makes it unknown, any other off.
func TestFailed(t *testing.T) {
	for err, want := range map[error]chat.LayerState{
		unix.ENOSPC: chat.LayerUnknown, unix.EDQUOT: chat.LayerUnknown, unix.EROFS: chat.LayerUnknown, errSlow: chat.LayerUnknown,
		unix.EMFILE: chat.LayerUnknown, unix.EPERM: chat.LayerOff, unix.ENOENT: chat.LayerOff, chat.ErrUnsupported: chat.LayerOff,
	} {
		if l := failed(chat.Layer{}, fmt.Errorf("it: %w", err), "fix it"); l.State != want || (l.Fix == "fix it") != (want == chat.LayerOff) {
			t.Errorf("%v: %+v", err, l)
		}
	}
}
