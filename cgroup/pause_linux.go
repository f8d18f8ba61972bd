package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// BesideLeaf is the leaf of what chatd does with an awake chat's files, under the chat's limits,
// and that goes on while the chat is paused.
const BesideLeaf = "beside"

// Pause stops every process of the chat where it is, but those in [BesideLeaf], and returns when
// they stand still. Starts wait until goOn is called, which may be called again. Where it fails
// they go on.
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
	text, err := cgroupfs.Read(f.dir(id, runsDir), "cgroup.freeze")
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// EndBeside kills every process in [BesideLeaf], and removes it; there being none is no error.
func (f *FS) EndBeside(ctx context.Context, id chat.ID) error {
	if err := checkID(id); err != nil {
		return err
	}
	dir := f.dir(id, BesideLeaf)
	err := cgroupfs.Kill(ctx, dir, nil, func() error { return f.lendCPU(id) })
	if err != nil {
		return err
	}
	defer f.lock(id).Unlock()
	return cgroupfs.Remove(dir)
}

// GiveUpFirst has the OOM killer take the processes in [BesideLeaf] before any other of the chat.
func (f *FS) GiveUpFirst(id chat.ID) error {
	pids, err := cgroupfs.Processes(f.dir(id, BesideLeaf))
	for _, pid := range pids {
		file := filepath.Join("/proc", strconv.Itoa(pid), "oom_score_adj")
		werr := os.WriteFile(file, []byte("1000"), 0)
		if werr != nil && !errors.Is(werr, fs.ErrNotExist) && !errors.Is(werr, unix.ESRCH) {
			err = errors.Join(err, fmt.Errorf("cannot order the OOM killer's victims: %w", werr))
		}
	}
	return err
}
