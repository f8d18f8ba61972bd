package layers

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestFailed: an error that says nothing about a wall makes it unknown, any other off.
func TestFailed(t *testing.T) {
	for err, want := range map[error]chat.LayerState{
		unix.ENOSPC: chat.LayerUnknown, unix.EDQUOT: chat.LayerUnknown,
		unix.EROFS: chat.LayerUnknown,
		ErrSlow:    chat.LayerUnknown, unix.EMFILE: chat.LayerUnknown, unix.EPERM: chat.LayerOff,
		unix.ENOENT: chat.LayerOff, chat.ErrUnsupported: chat.LayerOff, ErrLeftOut: chat.LayerOff,
	} {
		l := Failed(chat.Layer{}, fmt.Errorf("it: %w", err), "fix it")
		expect.True(t, l.State == want && (l.Fix == "fix it") == (want == chat.LayerOff), "%v: %+v", err, l)
	}
}

// TestOutcomes: a try that failed is no layer that is on, but where another try stood in for it.
func TestOutcomes(t *testing.T) {
	full := fmt.Errorf("cannot make it: %w", unix.ENOSPC)
	for name, of := range map[string]func(error, bool) chat.Layer{
		"account": func(err error, other bool) chat.Layer { return Account("userdb", err, other) },
		"home":    Home,
	} {
		for _, c := range []struct {
			err   error
			other bool
			want  chat.LayerState
		}{
			{nil, false, chat.LayerOn}, {full, true, chat.LayerOn},
			{full, false, chat.LayerUnknown}, {unix.EPERM, false, chat.LayerOff},
		} {
			l := of(c.err, c.other)
			if l.State != c.want || (l.Fix == "") != (c.want == chat.LayerOn) ||
				string(l.Name) != name {
				t.Errorf("%s, %v, %v: %+v", name, c.err, c.other, l)
			}
		}
	}
	if l := Sockets("", context.DeadlineExceeded); l.State != chat.LayerUnknown || l.By != "" {
		t.Errorf("without time: %+v", l)
	}
	if l := Sockets("", unix.EPERM); l.State != chat.LayerOff || l.By != "" || l.Fix == "" {
		t.Errorf("%+v", l)
	}
}
