package idle

import (
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot returns the wall clock, and the time since the host was booted, its sleep included
// (CLOCK_BOOTTIME in clock_gettime(2)).
func SinceBoot() (wall time.Time, boot time.Duration) {
	var at unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &at) // it fails only where there is no such clock
	return time.Now().Round(0).UTC(), time.Duration(at.Nano())
}
