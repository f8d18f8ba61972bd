package shims

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
)

// Confine irrevocably gives up every right that p does not grant, and execs the command. It
// returns only on error: the process is then half confined, and must exit. By then it has
// written the report, or the error, to p.ReportFD.
//
// Most of what it sets belongs to a thread (credentials(7)). Only the calling thread survives
// the exec, so its attributes are those of the command.
func Confine(p plan.Plan) error {
	runtime.LockOSThread()
	err := confine(p)
	if err == nil {
		err = execute(p)
	}
	return errors.Join(err, tell(p.ReportFD, plan.Report{Error: err.Error()}))
}

func confine(p plan.Plan) error {
	if err := p.Validate(); err != nil {
		return err
	}
	var report plan.Report
	for _, step := range []struct {
		name string
		skip bool
		do   func() error
	}{
		{"wait at the start barrier", p.BarrierFD == 0, func() error { return awaitStart(p) }},
		{"close descriptors", false, closeDescriptors},
		{"start a session", !p.Setsid, setsid},
		{"join a new keyring", false, joinKeyring},
		{"reset signals", false, resetSignals},
		{"set limits", false, func() error { return setLimits(p) }},
		{"drop privileges", p.LeavesOut(chat.LayerPrivileges), dropPrivileges},
		{"", false, func() error { return enterDir(p.Dir) }},
		{"enforce Landlock", p.LeavesOut(chat.LayerLandlock), func() (err error) {
			report.Landlock, err = landlock.Enforce(p.Landlock, p.MinABI, false)
			return err
		}},
		{"filter system calls", p.LeavesOut(chat.LayerSeccomp), func() error { return loadFilter(p.Opened) }},
		{"check the outcome", false, func() error { return checkOutcome(&report, p) }},
	} {
		if step.skip {
			continue
		}
		err := step.do()
		if err != nil && step.name == "" {
			return err // the caller named the directory: no wall is broken
		}
		if err != nil {
			return fmt.Errorf("cannot confine: cannot %s: %w", step.name, err)
		}
	}
	return tell(p.ReportFD, report)
}

func enterDir(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return fmt.Errorf("cannot enter %s: %w: want a directory that the chat sees and may enter",
			chat.Quote(dir), err)
	}
	return nil
}

// awaitStart waits until chatd-root writes a byte to the start barrier: the mounts that root
// adds to the session are complete by then. A barrier that closes without a byte is an error.
func awaitStart(p plan.Plan) error {
	if err := tell(p.ReportFD, plan.Report{Waiting: true}); err != nil {
		return err
	}
	var b [1]byte
	for {
		n, err := unix.Read(p.BarrierFD, b[:])
		switch {
		case err == unix.EINTR:
			continue
		case err == nil && n == 0:
			return errors.New("it was closed")
		}
		return err
	}
}

// checkOutcome fills r from the kernel's figures and returns an error where they differ from p.
func checkOutcome(r *plan.Report, p plan.Plan) error {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return err
	}
	if r.Status, err = plan.ParseStatus(string(text)); err != nil {
		return err
	}
	r.OOMScoreAdj = oomScoreAdj()
	privileges := r.CapEff | r.CapPrm | r.CapInh | r.CapAmb
	switch {
	case !p.LeavesOut(chat.LayerPrivileges) && (privileges != 0 || !r.NoNewPrivs):
		return fmt.Errorf("no_new_privs is %t, capabilities eff %x prm %x inh %x amb %x, want none",
			r.NoNewPrivs, r.CapEff, r.CapPrm, r.CapInh, r.CapAmb)
	case !p.LeavesOut(chat.LayerSeccomp) && r.Seccomp != unix.SECCOMP_MODE_FILTER:
		return fmt.Errorf("seccomp mode is %d, want %d", r.Seccomp, unix.SECCOMP_MODE_FILTER)
	}
	return nil
}

// tell writes one line of JSON to fd, if there is one.
func tell(fd int, r plan.Report) error {
	if fd == 0 {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("cannot report: %w", err)
	}
	for line = append(line, '\n'); len(line) > 0; {
		n, err := unix.Write(fd, line)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot report to descriptor %d: %w", fd, err)
		}
		line = line[n:]
	}
	return nil
}

// closeDescriptors marks every descriptor but 0, 1 and 2 close-on-exec, so that the command
// inherits none of its parent's. Closing them now would close those of the Go runtime.
func closeDescriptors() error {
	return unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

func setsid() error {
	if _, err := unix.Setsid(); err != nil && err != unix.EPERM { // EPERM: it leads one already
		return err
	}
	return nil
}

// joinKeyring leaves the session keyring that came from the daemon
// (session-keyring(7)). A kernel without keyrings has nothing to leave.
func joinKeyring() error {
	_, _, e := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if e != 0 && e != unix.ENOSYS {
		return e
	}
	return nil
}

// dropPrivileges sets no_new_privs and empties every capability set that it can
// (capabilities(7)). To shrink the bounding set and to lock securebits it needs
// CAP_SETPCAP. bwrap has emptied the bounding set before; a process that joined by
// nsenter has a full one and no capability to shrink it. That is harmless: the set
// only limits what an exec could add, and under no_new_privs an exec adds nothing.
// [Report] has the resulting sets.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot clear ambient capabilities: %w", err)
	}
	if err := dropBounding(); err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("cannot empty the capability sets: %w", err)
	}
	return nil
}

// lockedSecurebits: uid 0 gives no capability, no set survives a change of uid, no ambient
// capability can be raised, and all of this is locked.
const lockedSecurebits = 1<<0 | 1<<1 | 1<<2 | 1<<3 | 1<<5 | 1<<6 | 1<<7

// dropBounding empties the bounding set and locks securebits, if the process has CAP_SETPCAP.
func dropBounding() error {
	for c := uintptr(0); c < 64; c++ {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err == unix.EINVAL {
			break // past the kernel's last capability
		}
		if err != nil {
			return fmt.Errorf("cannot read the bounding set: %w", err)
		}
		if has == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EPERM {
			return nil
		} else if err != nil {
			return fmt.Errorf("cannot drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, lockedSecurebits, 0, 0, 0); err != nil && err != unix.EPERM {
		return fmt.Errorf("cannot lock securebits: %w", err)
	}
	return nil
}
