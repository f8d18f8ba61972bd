package provision

import (
	"context"
	"fmt"

	"github.com/chatd/chatd/chat"
)

var errArchivesPending = fmt.Errorf("cannot archive: %w", chat.ErrUnsupported)

// Archive is pending.
func (m *Manager) Archive(context.Context, chat.ID, chat.ToArchive) (chat.Archive, error) {
	return chat.Archive{}, errArchivesPending
}

// Archives is pending.
func (m *Manager) Archives(context.Context, chat.ArchiveFilter) ([]chat.Archive, error) {
	return nil, errArchivesPending
}

// VerifyArchive is pending.
func (m *Manager) VerifyArchive(context.Context, chat.ArchiveName) (chat.ArchiveCheck, error) {
	return chat.ArchiveCheck{}, errArchivesPending
}

// Unarchive is pending.
func (m *Manager) Unarchive(context.Context, chat.ArchiveName) (chat.Chat, error) {
	return chat.Chat{}, errArchivesPending
}

// RemoveArchive is pending.
func (m *Manager) RemoveArchive(context.Context, chat.ArchiveName) error {
	return errArchivesPending
}
