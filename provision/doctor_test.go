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
