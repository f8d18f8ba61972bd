package roottest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// greedyActs take as much as they get.
var greedyActs = map[string]act{
	// memory touches a[0] MiB.
	"memory": func(a []string) (string, error) {
		b, err := unix.Mmap(-1, 0, number(a[0])<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return "", err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		return "", nil
	},
	// children starts a[0] sleeping children at once.
	"children": func(a []string) (string, error) {
		for i := range number(a[0]) {
			cmd := exec.Command("/usr/bin/sleep", "100")
			if err := cmd.Start(); err != nil {
				return "", fmt.Errorf("after %d: %w", i, err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill()
		}
		return "", nil
	},
	// spin uses a[0] ms of CPU time.
	"spin": func(a []string) (string, error) {
		for {
			var u unix.Rusage
			if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
				return "", err
			}
			if u.Utime.Nano()+u.Stime.Nano() > int64(number(a[0]))*1e6 {
				return "", nil
			}
		}
	},
	"bombs":     bombs,
	"crowd":     crowd,
	"terminals": terminals,
	"mkdirs":    nest,
	"names":     hostileNames,
}

// bombs forks and allocates without end.
func bombs([]string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	for {
		for _, what := range [][]string{{"bombs"}, {"memory", "2000"}} {
			cmd := exec.Command(self, what...)
			cmd.Start() // refused or not: go on
			if cmd.Process != nil {
				go cmd.Wait()
			}
		}
	}
}

// crowd spins until it is killed, in a[0] processes of one task each, all on CPU a[1].
func crowd(a []string) (string, error) {
	runtime.LockOSThread() // children forked here inherit the CPU
	var cpu unix.CPUSet
	cpu.Set(number(a[1]))
	if err := unix.SchedSetaffinity(0, &cpu); err != nil {
		return "", err
	}
	for range number(a[0]) {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			return "", err
		}
		defer cmd.Wait()
	}
	return "", nil
}

// terminals opens pseudo-terminals in a[0] processes until none is to be had.
func terminals(a []string) (string, error) {
	return inProcesses("terminals", a, func() int {
		for opened := 0; ; opened++ {
			if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
				return opened
			}
		}
	})
}

// inProcesses does f here and act in a[0]-1 processes more, each of which
// starts the next. The file a[1] is there once all have done it, and they stay
// until the file a[2] is.
func inProcesses(act string, a []string, f func() int) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	ready := a[1] + "." + a[0]
	if n := number(a[0]); n > 1 {
		cmd := exec.Command(self, act, strconv.Itoa(n-1), a[1], a[2])
		cmd.Args[0] = attackName
		if err := cmd.Start(); err != nil {
			return "", err
		}
		defer cmd.Wait()
		if err := awaitFile(a[1] + "." + strconv.Itoa(n-1)); err != nil {
			return "", err
		}
	}
	made, err := os.Create(ready + ".new") // before f has used up all descriptors
	if err != nil {
		return "", err
	}
	did := strconv.Itoa(f())
	if err := os.Rename(made.Name(), ready); err != nil {
		return "", err
	}
	return did, awaitFile(a[2])
}

// nest makes a[1] directories, each in the one before.
func nest(a []string) (string, error) {
	if err := os.Chdir(a[0]); err != nil {
		return "", err
	}
	for range number(a[1]) {
		if err := unix.Mkdir("d", 0o700); err != nil {
			return "", err
		}
		if err := unix.Chdir("d"); err != nil {
			return "", err
		}
	}
	return "", os.WriteFile("bottom", nil, 0o600)
}

// hostileNames fills a directory with names that a careless remover trips over.
func hostileNames(a []string) (string, error) {
	at := func(n string) string { return a[0] + "/" + n }
	for _, n := range []string{"-rf", "--", "a\nb", "\xff\xfe", "*", "$(touch x)", "'\"`", strings.Repeat("n", 255), ".chatd-1", ".chatd-2", "..."} {
		if err := os.Mkdir(at(n), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(at(n), n), nil, 0o000); err != nil {
			return "", err
		}
		if err := os.Chmod(at(n), 0o000); err != nil {
			return "", err
		}
	}
	if err := unix.Mkfifo(at("fifo"), 0o600); err != nil {
		return "", err
	}
	if _, err := net.Listen("unix", at("socket")); err != nil {
		return "", err
	}
	for i := range 300 {
		if err := os.Symlink("/etc", at("link"+strconv.Itoa(i))); err != nil {
			return "", err
		}
	}
	return "", os.Symlink(".", at("loop"))
}

// awaitFile returns once the file is there.
func awaitFile(p string) error {
	if !comes(func() bool { return unix.Access(p, unix.F_OK) == nil }) {
		return unix.ETIMEDOUT
	}
	return nil
}
