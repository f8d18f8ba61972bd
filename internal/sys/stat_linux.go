package sys

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Stat is what chatd reads of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	Name   string // its own choice: up to 15 bytes of any kind
	State  byte   // R, S, D, Z, …
	Flags  uint64 // PF_ of the kernel's include/linux/sched.h
	Start  uint64 // in ticks since boot; with the pid it names one process
	CPU    time.Duration
	Memory uint64 // resident, in bytes
}

// Exiting is the flag of a process that has begun to end: the kernel moves it to no other
// cgroup, and it forks no more. Pid 1 of a namespace has it before the others there end.
const Exiting = 0x4

// tick is the unit of the kernel's times of processes: USER_HZ, on each architecture of Go.
const tick = time.Second / 100

// ReadStat reads it.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, fmt.Errorf("cannot look at process %d: %w", pid, err)
	}
	return parseStat(string(b))
}

// parseStat parses from the last ")" on: the name before it is the process's own choice and
// may hold anything.
func parseStat(s string) (Stat, error) {
	begin, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	f := strings.Fields(s[end+1:])
	if begin < 0 || end < begin || len(f) < 22 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("cannot read process stat %.80q", s)
	}
	var n [22]uint64
	for _, i := range []int{6, 11, 12, 19, 21} {
		var err error
		if n[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
			return Stat{}, fmt.Errorf("cannot read process stat %.80q: %w", s, err)
		}
	}
	return Stat{
		Name: s[begin+1 : end], State: f[0][0], Flags: n[6], Start: n[19],
		CPU: time.Duration(n[11]+n[12]) * tick, Memory: n[21] * uint64(os.Getpagesize()),
	}, nil
}

// statusFields are the fields of a line of /proc/PID/status, where the kernel escapes the newlines of
// the process's name (proc_pid_status(5)).
func statusFields(status, line string) []string {
	_, rest, _ := strings.Cut(status, "\n"+line+":")
	rest, _, _ = strings.Cut(rest, "\n")
	return strings.Fields(rest)
}

// statusUID is the real uid.
func statusUID(status string) (uint32, error) {
	f := statusFields(status, "Uid")
	if len(f) == 0 {
		return 0, fmt.Errorf("cannot read process status %.80q: it has no uid", status)
	}
	n, err := strconv.ParseUint(f[0], 10, 32)
	return uint32(n), err
}
