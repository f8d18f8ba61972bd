package sys

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Stat is what chatd reads of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	State byte   // R, S, D, Z, …
	Flags uint64 // PF_ of the kernel's include/linux/sched.h
	Start uint64 // in ticks since boot; with the pid it names one process
}

// Exiting is the flag of a process that has begun to end: the kernel moves it to no other
// cgroup, and it forks no more. Pid 1 of a namespace has it before the others there end.
const Exiting = 0x4

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
	i := strings.LastIndexByte(s, ')')
	f := strings.Fields(s[i+1:])
	if i < 0 || len(f) < 20 || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("cannot read process stat %.80q", s)
	}
	flags, ferr := strconv.ParseUint(f[6], 10, 64)
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err = errors.Join(ferr, err); err != nil {
		return Stat{}, fmt.Errorf("cannot read process stat %.80q: %w", s, err)
	}
	return Stat{State: f[0][0], Flags: flags, Start: start}, nil
}
