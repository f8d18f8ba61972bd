package provision

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestDoctorWithoutRoom: where there is no room to try anything nothing is said to be missing.
func TestDoctorWithoutRoom(t *testing.T) {
	h := withoutRoom(Options{}, fmt.Errorf("cannot make a directory: %w", unix.ENOSPC))
	expect.True(t, len(h.Layers) == len(chat.LayerNames()) && len(h.Missing) == 0, "%+v", h)
	for _, l := range h.Layers {
		expect.True(t, l.State == chat.LayerUnknown && l.Fix != "", "%+v", l)
	}
}
