package cgroup

import (
	"context"
	"errors"
	"sync"

	"github.com/chatd/chatd/chat"
)

// Pause stops every process of the chat where it is, and returns when they stand still. Starts wait
// until goOn is called, which may be called again. Where it fails they go on.
//
// Only a pause freezes the cgroup of all runs, so a chatd that comes after a crash knows one by
// that, and ends it: see [FS.EndPause]. It is frozen first and thawed last.
func (f *FS) Pause(ctx context.Context, id chat.ID) (goOn func() error, err error) {
	g := f.gate(id)
	g.Lock()
	goOn = sync.OnceValue(func() error {
		defer g.Unlock()
		return f.EndPause(id)
	})
	leaves := []string{runsDir, sessionLeaf}
	for _, leaf := range leaves {
		err = errors.Join(err, f.writeFreeze(id, "1", leaf))
	}
	for _, leaf := range leaves {
		if err == nil {
			err = f.awaitFrozen(ctx, id, leaf)
		}
	}
	if err != nil {
		return nil, errors.Join(err, goOn())
	}
	return goOn, nil
}

// EndPause lets a chat go on that is paused, and no other.
func (f *FS) EndPause(id chat.ID) error {
	if !f.paused(id) {
		return nil
	}
	err := f.writeFreeze(id, "0", sessionLeaf)
	if errors.Is(err, chat.ErrNotFound) {
		err = nil // the session ended
	}
	return errors.Join(err, f.writeFreeze(id, "0", runsDir))
}

func (f *FS) paused(id chat.ID) bool {
	is, err := f.freezes(id, runsDir)
	return is && err == nil
}
