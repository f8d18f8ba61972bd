package roottest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processActs are what an attacker does to processes.
var processActs = map[string]act{
	// seek looks for a word in what /proc tells of any process.
	"seek": func(a []string) (string, error) {
		for _, file := range []string{"cmdline", "environ", "comm", "status"} {
			found, _ := filepath.Glob("/proc/[0-9]*/" + file)
			for _, p := range found {
				if p == fmt.Sprintf("/proc/%d/%s", os.Getpid(), file) {
					continue // it has the word as its argument
				}
				if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte(a[0])) {
					return p, nil
				}
			}
		}
		return "", unix.ESRCH
	},
	"kill":  func(a []string) (string, error) { return "", unix.Kill(number(a[0]), unix.Signal(number(a[1]))) },
	"pidfd": func(a []string) (string, error) { return closing(unix.PidfdOpen(number(a[0]), 0)) },
	"ptrace": func(a []string) (string, error) {
		runtime.LockOSThread()
		pid := number(a[0])
		if err := unix.PtraceAttach(pid); err != nil {
			return "", err
		}
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
			return "", err
		}
		return "", unix.PtraceDetach(pid)
	},
	"memory-of": func(a []string) (string, error) {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(number(a[0]), []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0, Len: 8}}, 0)
		if err == unix.EFAULT {
			err = nil // it was allowed to look, and there is nothing at 0
		}
		return "", err
	},
	"limits-of": func(a []string) (string, error) {
		var l unix.Rlimit
		return "", unix.Prlimit(number(a[0]), unix.RLIMIT_NOFILE, nil, &l)
	},
	"priority-of-uid": func(a []string) (string, error) {
		_, err := unix.Getpriority(unix.PRIO_USER, number(a[0]))
		return "", err
	},
	"cpus-of": func(a []string) (string, error) {
		var s unix.CPUSet
		return "", unix.SchedGetaffinity(number(a[0]), &s)
	},
	"self": func([]string) (string, error) { return strconv.Itoa(os.Getpid()), nil },
	// child-then does an act to a child of its own: the positive control.
	"child-then": func(a []string) (string, error) {
		cmd := exec.Command("sleep", "100")
		if err := cmd.Start(); err != nil {
			return "", err
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		return acts[a[0]](append([]string{strconv.Itoa(cmd.Process.Pid)}, a[1:]...))
	},
	"ambush":   ambush,
	"i386":     i386,
	"run":      func(a []string) (string, error) { return "", exec.Command(a[0], a[1:]...).Run() },
	"status":   func(a []string) (string, error) { return statusField(os.Getpid(), a[0]) },
	"programs": gainingPrograms,
}

func statusField(pid int, name string) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(b), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Join(strings.Fields(line), " "), err
}

// ambush waits for commands that chatd sends into the session, and tries to
// take each one over in the moment when it has joined and is not confined yet:
// by tracing it and by opening its memory and its descriptors. It goes on until
// the file a[0] is there, and says how many it met; a[0].waits is there once it waits, a[0].met
// once it met one.
func ambush(a []string) (string, error) {
	runtime.LockOSThread()
	met := map[string]bool{}
	if err := os.WriteFile(a[0]+".waits", nil, 0o600); err != nil {
		return "", err
	}
	for unix.Access(a[0], unix.F_OK) != nil {
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, dir := range dirs {
			b, err := os.ReadFile(dir + "/cmdline")
			if err != nil || !bytes.Contains(b, []byte("--plan-fd")) || !bytes.Contains(b, []byte("chatd-shim\x00confine")) || dir == "/proc/1" {
				continue
			}
			if len(met) == 0 {
				if err := os.WriteFile(a[0]+".met", nil, 0o600); err != nil {
					return "", err
				}
			}
			met[dir] = true
			if what := takeOver(dir); what != "" {
				return what, nil
			}
		}
	}
	return "", fmt.Errorf("met %d, took over none", len(met))
}

func takeOver(dir string) string {
	pid, _ := strconv.Atoi(filepath.Base(dir))
	if fd, err := unix.Open(dir+"/mem", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		unix.Close(fd)
		return "memory of " + dir
	}
	// The directory shows which descriptors are open; their targets are visible only to a process
	// that may trace it.
	fds, _ := filepath.Glob(dir + "/fd/*")
	for _, p := range fds {
		if to, err := os.Readlink(p); err == nil {
			return "descriptor " + p + " of " + to
		}
	}
	if err := unix.PtraceAttach(pid); err == nil {
		unix.PtraceDetach(pid)
		return "trace of " + dir
	}
	return ""
}

// elf386 is a whole 32-bit program: mov eax,1; mov ebx,42; int 0x80, which is
// exit(42) by the system call table of another architecture.
var elf386 = append([]byte("\x7fELF\x01\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"+
	"\x02\x00\x03\x00\x01\x00\x00\x00\x54\x80\x04\x08\x34\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x34\x00\x20\x00\x01\x00\x00\x00\x00\x00\x00\x00"+
	"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x80\x04\x08\x00\x80\x04\x08\x60\x00\x00\x00\x60\x00\x00\x00\x05\x00\x00\x00\x00\x10\x00\x00"),
	"\xb8\x01\x00\x00\x00\xbb\x2a\x00\x00\x00\xcd\x80"...)

// i386 makes system calls of another architecture, which a filter by number
// would take for others.
func i386(a []string) (string, error) {
	p := filepath.Join(a[0], "i386")
	if err := os.WriteFile(p, elf386, 0o700); err != nil {
		return "", err
	}
	err := exec.Command(p).Run()
	if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == 42 {
		return "", nil
	}
	if exit, ok := err.(*exec.ExitError); ok && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGSYS {
		return "", errors.New("bad-system-call")
	}
	return "", err
}

// gainingPrograms starts every program below the directories that is setuid,
// setgid or has file capabilities, and watches whether it becomes anybody else.
// It says how many it tried; one that gained something is the error.
func gainingPrograms(roots []string) (string, error) {
	tried := 0
	var gained []string
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !gains(p) {
				return nil
			}
			tried++
			if as := startedAs(p); as != "" {
				gained = append(gained, p+" as "+as)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	if len(gained) > 0 {
		return "", fmt.Errorf("gained: %s", strings.Join(gained, ", "))
	}
	return strconv.Itoa(tried), nil
}

func gains(p string) bool {
	var st unix.Stat_t
	if unix.Lstat(p, &st) != nil {
		return false
	}
	n, err := unix.Lgetxattr(p, "security.capability", nil)
	return st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 || err == nil && n > 0
}

// startedAs starts a program on a pipe that says nothing and looks at it for a while: its effective
// uid, gid and capabilities, where they are not our own. With hidepid a child that is no longer
// visible has changed its ids: it was not waited for, so it still exists.
func startedAs(p string) string {
	cmd := exec.Command(p)
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return ""
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	defer in.Close()
	for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); {
		for _, f := range []string{"Uid", "Gid", "CapEff"} {
			own, _ := statusField(os.Getpid(), f)
			now, err := statusField(cmd.Process.Pid, f)
			if errors.Is(err, os.ErrNotExist) {
				return "somebody who is hidden"
			}
			if err == nil && now != "" && now != own {
				return f + " " + now
			}
		}
	}
	return ""
}
