package sockets

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

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
