package roottest

import (
	"errors"

	"github.com/chatd/chatd/chat"
	"pgregory.net/rapid"
)

// freeze is an operator's: it holds over the kill of a process, refuses what would use the chat,
// and ends with the thaw.
func (h *history) freeze(rt *rapid.T) {
	e := h.known(rt)
	if !e.chat.Awake {
		rt.Skip("it is asleep")
	}
	ctx, cancel := h.ctx()
	defer cancel()
	h.answered(rt, e, true)(h.Freeze(ctx, e.chat.ID))
	h.kill(rt)
	h.compare(rt)
	c, err := h.Get(ctx, e.chat.ID)
	if err != nil || c.Frozen != chat.FrozenUntilThawed {
		rt.Fatalf("it is frozen %q, %v", c.Frozen, err)
	}
	_, err = h.Run(ctx, e.chat.ID, chat.RunSpec{Command: "true"})
	if !errors.Is(err, chat.ErrBusy) {
		rt.Fatalf("a run in it: %v", err)
	}
	h.answered(rt, e, true)(h.Thaw(ctx, e.chat.ID))
	if c, err := h.Get(ctx, e.chat.ID); err != nil || c.Frozen != "" {
		rt.Fatalf("thawed, it is frozen %q, %v", c.Frozen, err)
	}
}
