package provision

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// Backup is [state.Store.Backup], for an operator.
func (m *Manager) Backup(ctx context.Context) (b chat.Backup, err error) {
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return b, fmt.Errorf("cannot back up: the archive has the install key, and is for operators: %w", chat.ErrDenied)
	}
	err = m.audited(ctx, state.Record{}, "backup", nil, func() error {
		b, err = m.store.Backup(ctx)
		return err
	})
	return b, err
}
