package sys

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// WritersOf names the users besides root that may write to a file or a directory. An access
// control list shows in the group's bits (acl(5)).
func WritersOf(st unix.Stat_t) string {
	switch {
	case st.Uid != 0:
		return fmt.Sprintf("uid %d, which owns it,", st.Uid)
	case st.Mode&0o002 != 0:
		return "everybody"
	case st.Mode&0o020 != 0:
		return fmt.Sprintf("a group (gid %d, or one of its access list)", st.Gid)
	}
	return ""
}
