package roottest

import (
	"math"

	"golang.org/x/sys/unix"
)

// x86Acts are calls that only this processor's kernel has.
var x86Acts = map[string]act{
	"ioperm":     raw(unix.SYS_IOPERM, 0x80, 1, 1),
	"modify_ldt": raw(unix.SYS_MODIFY_LDT, 0, 0, 0),
	"x32":        raw(0x40000000|unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, math.MaxUint64-3, 1),
}

var x86Cases = []kernelCase{
	{"ioperm", []string{"ioperm"}, "EPERM", "ok EPERM"},
	{"modify_ldt", []string{"modify_ldt"}, "EPERM", "ok ENOSYS EINVAL"},
	{"x32 calls", []string{"x32"}, "EPERM ENOSYS", "ok ENOSYS"},
}
