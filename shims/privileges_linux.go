package shims

import (
	"fmt"

	"golang.org/x/sys/unix"
)

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
