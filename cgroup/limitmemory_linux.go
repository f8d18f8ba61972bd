package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/cgroup/cgroupfs"
	"github.com/chatd/chatd/chat"
)

// Memory under cgroup v1: two limits that depend on each other, and a third for sockets.

// limitMemory keeps memory+swap at or above memory in between, or the kernel says
// EINVAL.
func (g legacy) limitMemory(id chat.ID, l chat.Limits) error {
	type step struct {
		file  string
		value int64
	}
	steps := []step{{"memory.limit_in_bytes", *signed(l.MemoryMax)}}
	if both := g.memorySwap(l); both != nil {
		now, err := cgroupfs.ReadNumber(g.dir("memory", id, ""), "memory.limit_in_bytes")
		if err != nil {
			return err
		}
		steps = append(steps, step{"memory.memsw.limit_in_bytes", *both})
		if now <= uint64(*both) {
			slices.Reverse(steps)
		}
	}
	for _, s := range steps {
		if err := g.set(id, "memory", s.file, s.value); err != nil {
			return err
		}
	}
	return g.limitSocketMemory(id, l)
}

// socketMemory bounds what lies in socket buffers, which v1 does not charge to
// memory.limit_in_bytes. Without it a chat held 1 GiB in the queues of UDP sockets under a limit of
// 256 MiB (tried on 6.18). The file is named for TCP and counts every protocol.
const socketMemory = "memory.kmem.tcp.limit_in_bytes"

func (g legacy) limitSocketMemory(id chat.ID, l chat.Limits) error {
	dir := g.dir("memory", id, "")
	if _, err := os.Stat(filepath.Join(dir, socketMemory)); err != nil {
		return nil // a kernel built without it
	}
	return cgroupfs.Write(dir, socketMemory, strconv.FormatUint(l.MemoryMax/8, 10))
}

// inheritSocketMemory gives a run's leaf the chat's limit. The sum is bounded
// anyway, but the kernel counts only for a cgroup that has had a limit written.
func (g legacy) inheritSocketMemory(id chat.ID, run string) error {
	text, err := cgroupfs.Read(g.dir("memory", id, ""), socketMemory)
	if errors.Is(err, chat.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return cgroupfs.Write(g.dir("memory", id, run), socketMemory, strings.TrimSpace(string(text)))
}

// memorySwap is the limit of memory and swap together, as v1 has it; nil without
// swap accounting, when the kernel has no such file.
func (g legacy) memorySwap(l chat.Limits) *int64 {
	if _, err := os.Stat(filepath.Join(g["memory"], "memory.memsw.limit_in_bytes")); err != nil {
		return nil
	}
	return signed(uint64(*signed(l.MemoryMax)) + uint64(*signed(l.SwapMax)))
}
