package sockets

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/chatd/chatd/internal/sys"
)

const (
	// unchanged is how many rounds lie between two lists of a session that shows no growth.
	unchanged = 20
	// grownPages is the growth of TCP and UDP pages from which a session is listed again.
	grownPages = 16 << 20 / 4096
	// fewSockets is a number of sockets that never hold a share; they are not listed.
	fewSockets = 16
	// maxLocks is how many record locks a chat may have. They take 200 bytes each, charged to no
	// cgroup, and no program of a chat needs hundreds.
	maxLocks = 10_000
	// leastShare is the smallest share, in bytes, whatever memory_max.
	leastShare = 16 << 20
)

// share is how much the kernel may hold for a chat's sockets, in bytes. Part of it is charged to
// memory_max as well, on some kernels all.
func (s Session) share() uint64 { return max(s.MemoryMax/2, leastShare) }

// due reports whether the namespace must be listed now. It must have more than fewSockets. Further,
// it has grown, some session is near its share, or a multiple of unchanged rounds has passed.
func (w *watch) due(n *network) (bool, error) {
	now, err := n.count()
	if err != nil || now.Sockets <= fewSockets {
		return false, err
	}
	grown := now.Sockets > n.listed.Sockets+fewSockets/2 ||
		now.Pages > n.listed.Pages+grownPages
	n.listed.Pages = min(n.listed.Pages, now.Pages)
	if !grown && !n.near && w.round%unchanged != 0 {
		return false, nil
	}
	n.listed = now
	return true, nil
}

// lookAlone checks a session with a network of its own by all sockets in that network.
func (w *watch) lookAlone(s Session, n *network) error {
	due, err := w.due(n)
	if err != nil || !due {
		return err
	}
	found, err := n.look()
	if !s.Init.Alive() {
		return nil
	}
	if err != nil {
		return err
	}
	if share := s.share(); uint64(found.Unlisted)*w.unlisted > share/4 {
		pids, err := w.Members(s.Chat)
		if err != nil {
			return nil // it is ending
		}
		u := unlistedOf(pids, found.Inodes, maxDescriptors)
		found.All.Sockets, found.All.Bytes = found.All.Sockets+u.Sockets, found.All.Bytes+u.Bytes
		found.Unlisted = max(0, found.Unlisted-u.Sockets)
	}
	n.near = w.check(s, found.All, found.Unlisted)
	return nil
}

// lookShared checks the sessions in the host's network, each by the sockets of its uid.
func (w *watch) lookShared(all []Session) error {
	due, err := w.due(&w.shared)
	if err != nil || !due {
		return err
	}
	found, err := w.shared.look()
	if err != nil {
		return err
	}
	w.shared.near = false
	for _, s := range all {
		u := unlisted{usage: found.ByUID[s.UID]}
		if uint64(found.Unlisted)*w.unlisted > s.share() {
			pids, err := w.Members(s.Chat)
			if err != nil {
				continue // it is ending
			}
			of := unlistedOf(pids, found.Inodes, math.MaxInt)
			u = unlisted{usage{u.Sockets + of.Sockets, u.Bytes + of.Bytes}, of.rest}
		}
		if w.check(s, u.usage, u.rest) {
			w.shared.near = true
		}
	}
	return nil
}

// check ends a session that holds more than its share, and reports whether it is near it.
func (w *watch) check(s Session, h usage, unlisted int) (near bool) {
	holds, share := h.Bytes+uint64(unlisted)*w.unlisted, s.share()
	if holds > share {
		w.End(s, fmt.Sprintf("the kernel held up to %d MiB for its sockets, of which there "+
			"were %d: more than its share of %d MiB, half of memory_max",
			holds>>20, h.Sockets+unlisted, share>>20))
	}
	return holds > share/4
}

// lookAtLocks ends sessions with too many record locks.
func (w *watch) lookAtLocks(awake []Session) error {
	byPid, err := recordLocks()
	if err != nil {
		return err
	}
	byUID := map[uint32]int{}
	for pid, n := range byPid {
		if uid, err := sys.UIDOf(pid); err == nil { // else it has ended, and so have its locks
			byUID[uid] += n
		}
	}
	for _, s := range awake {
		if n := byUID[s.UID]; n > maxLocks {
			w.End(s, fmt.Sprintf("it held more than %d record locks, which are kernel memory "+
				"that no limit counts", maxLocks))
		}
	}
	return nil
}

// locksRead bounds how much of the list of locks one call reads, in bytes: some 16,000 lines. The
// kernel lists the newest of each CPU first.
const locksRead = 1 << 20

// recordLocks counts the record locks of each process that has some (proc_locks(5)).
func recordLocks() (map[int]int, error) {
	f, err := os.Open("/proc/locks")
	if err != nil {
		return nil, fmt.Errorf("cannot count record locks: %w", err)
	}
	counts, err := parseLocks(io.LimitReader(f, locksRead))
	return counts, errors.Join(err, f.Close())
}

// parseLocks reads lines like "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF". A
// line of a lock that waits has "->" after its number. The last line may be cut short.
func parseLocks(r io.Reader) (map[int]int, error) {
	counts := map[int]int{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) > 1 && f[1] == "->" {
			f = append(f[:1], f[2:]...)
		}
		if len(f) < 8 || f[1] != "POSIX" {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			counts[pid]++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot count record locks: %w", err)
	}
	return counts, nil
}
