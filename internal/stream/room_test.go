package stream

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRoom: what is kept of all streams never exceeds the room, and what was given back has room
// again.
func TestRoom(t *testing.T) {
	const each, all, least = 64 << 10, 160 << 10, 2 << 10
	r := NewRoom(all, each)
	p := must.Get(r.Enter("ada", least))(t)
	printed := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	out, errs := NewCapture(chat.DefaultOutputMax).Within(p), NewCapture(chat.DefaultOutputMax).Within(p)
	for range 4 {
		out.Add(printed[:len(printed)/4])
		errs.Add(printed[:len(printed)/4])
	}
	kept := cap(out.head) + cap(out.tail) + cap(errs.head) + cap(errs.tail)
	expect.True(t, kept <= each && kept >= each/2, "%d bytes are kept, want at most %d", kept, each)
	for name, c := range map[string]*Capture{"stdout": out, "stderr": errs} {
		if !c.Truncated() || c.Total() != int64(len(printed)) || !strings.Contains(c.Text(), "[chatd left ") {
			t.Errorf("%s: truncated %t, total %d, text of %d", name, c.Truncated(), c.Total(), len(c.Text()))
		}
	}
	if _, err := r.Enter("ada", each); !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "65536") {
		t.Errorf("over the limit: %v", err)
	}
	p.Leave()
	p.Leave()
	expect.True(t, r.held == 0 && len(r.by) == 0, "after all have left %d bytes are held, %v", r.held, r.by)
	if _, err := r.Enter("ada", each); err != nil {
		t.Errorf("after all have left: %v", err)
	}
}

// TestRoomOfOthers: an owner with a used-up share takes nothing from others, and all together get
// no more than the room.
func TestRoomOfOthers(t *testing.T) {
	r := NewRoom(250, 100)
	must.Do(t, expect.Err(r.Enter("ada", 100)))
	expect.Is(t, expect.Err(r.Enter("ada", 1)), chat.ErrBusy, "more than one's part")
	if _, err := r.Enter("bob", 100); err != nil {
		t.Errorf("another one: %v", err)
	}
	expect.Is(t, expect.Err(r.Enter("eve", 51)), chat.ErrBusy, "more than there is")
	p, err := r.Enter("eve", 50)
	expect.True(t, err == nil && p.grow(40) == 40 && p.grow(20) == 10 && p.grow(1) == 0,
		"what is left: %v, %+v", err, p)
}
