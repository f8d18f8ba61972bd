package scan

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/landlock"
)

// confine gives up what the walk does not need, for every thread and for good. missing are the walls
// that this kernel does not have.
func confine() (missing []string, err error) {
	if err := lowestPriority(); err != nil {
		return nil, err
	}
	if err := onlySearches(); err != nil {
		return nil, err
	}
	// No open but openat2(2), which Landlock checks, no socket, no exec.
	return landlock.Restrict(landlock.Rules{List: []string{"/"}}, "openat2", "getdents64", "statx")
}

// onlySearches checks that the process has CAP_DAC_READ_SEARCH and no other capability.
func onlySearches() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("cannot read the capabilities: %w", err)
	}
	want := uint32(1) << unix.CAP_DAC_READ_SEARCH
	if data[0].Effective != want || data[0].Permitted != want || data[1].Permitted != 0 {
		return fmt.Errorf("cannot scan with the capabilities %#x: want CAP_DAC_READ_SEARCH alone",
			uint64(data[1].Permitted)<<32|uint64(data[0].Permitted))
	}
	if unix.Getuid() == 0 {
		return fmt.Errorf("cannot scan as root")
	}
	return nil
}
