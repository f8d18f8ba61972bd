package apitest

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Freeze freezes an awake chat: for its owner until it is used, for an operator until Thaw.
func (m *Memory) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.change(ctx, id, func(c *chat.Chat) error {
		switch {
		case !c.Awake:
			return fmt.Errorf("cannot freeze chat %s: it is asleep: %w", id, chat.ErrWrongPhase)
		case chat.CallerFrom(ctx).Role == chat.RoleOperator:
			c.Frozen = chat.FrozenUntilThawed
		case c.Frozen == "":
			c.Frozen = chat.FrozenUntilUsed
		}
		return nil
	})
}

// Thaw thaws a chat, except for a bridge none that an operator froze.
func (m *Memory) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) {
	return m.change(ctx, id, func(c *chat.Chat) error {
		if c.Frozen == chat.FrozenUntilThawed && chat.CallerFrom(ctx).Role != chat.RoleOperator {
			return fmt.Errorf("cannot thaw chat %s: an operator froze it: %w", id, chat.ErrDenied)
		}
		c.Frozen = ""
		return nil
	})
}
