package apitest

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
)

// Freeze freezes an awake chat: for its owner until it is used, for an operator until Thaw.
func (m *Memory) Freeze(ctx context.Context, id chat.ID) (chat.Chat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err == nil && !c.Awake {
		err = fmt.Errorf("cannot freeze chat %s: it is asleep: %w", id, chat.ErrWrongPhase)
	}
	if err != nil {
		return chat.Chat{}, err
	}
	switch {
	case chat.CallerFrom(ctx).Role == chat.RoleOperator:
		c.Frozen = chat.FrozenUntilThawed
	case c.Frozen == "":
		c.Frozen = chat.FrozenUntilUsed
	}
	return *c, nil
}

// Thaw thaws a chat, except for a bridge none that an operator froze.
func (m *Memory) Thaw(ctx context.Context, id chat.ID) (chat.Chat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Chat{}, err
	}
	if c.Frozen == chat.FrozenUntilThawed && chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return chat.Chat{}, fmt.Errorf("cannot thaw chat %s: an operator froze it: %w", id,
			chat.ErrDenied)
	}
	c.Frozen = ""
	return *c, nil
}
