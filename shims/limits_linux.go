package shims

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/chatd/chatd/internal/plan"

	"golang.org/x/sys/unix"
)

// The limits of every process of a chat, beside those of its cgroup.
const (
	defaultNoFile = 1024
	memLock       = 64 << 10 // bytes
	msgQueue      = 8192     // bytes
	oomScore      = 500      // the chat goes before the host's services
)

// setLimits sets umask, resource limits (getrlimit(2)) and the OOM score.
func setLimits(p plan.Plan) error {
	unix.Umask(0o077)
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"nofile", unix.RLIMIT_NOFILE, cmp.Or(p.NoFile, defaultNoFile)},
		{"fsize", unix.RLIMIT_FSIZE, cmp.Or(p.FSize, unix.RLIM_INFINITY)},
		{"core", unix.RLIMIT_CORE, 0},
		{"memlock", unix.RLIMIT_MEMLOCK, memLock}, {"msgqueue", unix.RLIMIT_MSGQUEUE, msgQueue},
	} {
		if err := setLimit(l.resource, l.value); err != nil {
			return fmt.Errorf("cannot set %s to %d: %w", l.name, l.value, err)
		}
	}
	return raiseOOMScore()
}

// setLimit sets both the hard and the soft limit to value, or to the current hard limit if that
// is lower: it cannot be raised.
func setLimit(resource int, value uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	value = min(value, now.Max)
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value})
}

const oomFile = "/proc/self/oom_score_adj"

// oomScoreAdj is the score of this process; 0, the kernel's default, when it cannot be read.
func oomScoreAdj() int {
	text, err := os.ReadFile(oomFile)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// raiseOOMScore never lowers the score. A /proc that refuses is not an error: the score only orders
// the OOM killer's victims, and the report has its value.
func raiseOOMScore() error {
	if oomScoreAdj() >= oomScore {
		return nil
	}
	err := os.WriteFile(oomFile, []byte(strconv.Itoa(oomScore)), 0)
	if errors.Is(err, unix.EROFS) || os.IsPermission(err) || os.IsNotExist(err) {
		return nil
	}
	return err
}

// kernelAction is struct sigaction of rt_sigaction(2). This program only compares the handler
// with SIG_IGN and writes SIG_DFL, with zero in all fields behind it, whose order therefore does
// not matter.
type kernelAction struct {
	handler uintptr
	rest    [3]uint64
}

// resetSignals gives each ignored signal its default action, and unblocks all. Exec keeps both
// (signal(7)), and a shell that ignores SIGINT or SIGTSTP from its start cannot trap them. The
// handlers, which are the Go runtime's, end with the exec.
func resetSignals() error {
	const ignored, maskBytes = 1, 8
	for sig := uintptr(1); sig <= 64; sig++ {
		if sig == uintptr(unix.SIGKILL) || sig == uintptr(unix.SIGSTOP) {
			continue
		}
		var a kernelAction
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&a)), maskBytes,
			0, 0); e != 0 {
			return fmt.Errorf("cannot read the action of signal %d: %w", sig, e)
		}
		if a.handler != ignored {
			continue
		}
		a = kernelAction{}
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&a)), 0, maskBytes,
			0, 0); e != 0 {
			return fmt.Errorf("cannot reset signal %d: %w", sig, e)
		}
	}
	return unix.PthreadSigmask(unix.SIG_SETMASK, &unix.Sigset_t{}, nil)
}
