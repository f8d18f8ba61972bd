package gateway

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// names is the file in which chatd-egress keeps the names that it gave addresses to, so that the
// next one gives them the same.
func (g *Gateway) names(id chat.ID) string { return filepath.Join(g.opt.Dir, "names-"+string(id)) }

func (g *Gateway) openNames(id chat.ID, flag int) (*os.File, error) {
	return os.OpenFile(g.names(id), os.O_CREATE|os.O_RDWR|os.O_APPEND|unix.O_NOFOLLOW|flag, 0o600)
}

// newNames makes the file for a session that begins. A chatd-egress may still write to that of the
// session before, which is another file.
func (g *Gateway) newNames(id chat.ID) (*os.File, error) {
	if err := removeNames(g.names(id)); err != nil {
		return nil, err
	}
	return g.openNames(id, os.O_EXCL)
}

func removeNames(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove the names of a chat: %w", err)
	}
	return nil
}
