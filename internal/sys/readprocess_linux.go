package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessInfo is what the kernel counts of a process, and its name.
type ProcessInfo struct {
	UID    uint32 // the real uid
	Inner  int    // its pid in its own namespace
	Name   string // its own choice: up to 15 bytes of any kind
	State  byte   // as in [Stat]
	Memory uint64 // resident, in bytes
	CPU    time.Duration
}

// userHZ is how many ticks of a process's CPU time the kernel tells as a second (times(2)).
const userHZ = 100

// maxProcFile bounds what is read of a file of /proc/PID.
const maxProcFile = 16 << 10

// ReadProcess reads stat and status of a process by one descriptor of its directory, so that both
// are of the same process, even if its pid is reused. One that has ended is [os.ErrNotExist]. As
// for [PidsOf], no read waits for the process's memory.
func ReadProcess(pid int) (p ProcessInfo, err error) {
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return p, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	stat, err := readProcFile(dir, "stat")
	if err != nil {
		return p, err
	}
	status, err := readProcFile(dir, "status")
	if err != nil {
		return p, err
	}
	return parseProcess(stat, status)
}

func readProcFile(dir *os.Root, name string) (string, error) {
	var b []byte
	f, err := dir.Open(name)
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(f, maxProcFile))
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, unix.ESRCH) {
		err = errors.Join(os.ErrNotExist, err)
	}
	if err != nil {
		return "", fmt.Errorf("cannot look at a process: %w", err)
	}
	return string(b), nil
}

// parseProcess parses proc_pid_stat(5) from the last ")" on, as parseStat does, and the lines of
// proc_pid_status(5), where the kernel escapes the newlines of the name.
func parseProcess(stat, status string) (p ProcessInfo, err error) {
	begin, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	f := strings.Fields(stat[end+1:])
	if begin < 0 || end < begin || len(f) < 22 || len(f[0]) != 1 {
		return p, fmt.Errorf("cannot read process stat %.80q", stat)
	}
	p.Name, p.State = stat[begin+1:end], f[0][0]
	user, uerr := strconv.ParseUint(f[11], 10, 64)
	system, serr := strconv.ParseUint(f[12], 10, 64)
	pages, perr := strconv.ParseUint(f[21], 10, 64)
	p.CPU = time.Duration(user+system) * time.Second / userHZ
	p.Memory = pages * uint64(os.Getpagesize())
	uid, ierr := strconv.ParseUint(statusField(status, "Uid", 1), 10, 32)
	inner, nerr := strconv.Atoi(statusField(status, "NSpid", -1))
	p.UID, p.Inner = uint32(uid), inner
	if err := errors.Join(uerr, serr, perr, ierr, nerr); err != nil {
		return p, fmt.Errorf("cannot read process stat %.80q: %w", stat, err)
	}
	return p, nil
}

// statusField is a field of a line of status, from 1 on; -1 is the last.
func statusField(status, line string, n int) string {
	_, rest, _ := strings.Cut("\n"+status, "\n"+line+":")
	rest, _, _ = strings.Cut(rest, "\n")
	f := strings.Fields(rest)
	if n < 0 {
		n = len(f)
	}
	if n == 0 || n > len(f) {
		return ""
	}
	return f[n-1]
}
