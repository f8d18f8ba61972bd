package leftovers

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// MaxLooks bounds the files that one search examines.
const MaxLooks = 20000

var errEnough = errors.New("the search has looked at MaxLooks files")

// Search calls found once for each file of the uid in the directories, which may lie in each
// other, and at the top of the host's /tmp and /var/tmp. It reports whether it saw all: MaxLooks
// may have ended it, and it crosses no mount.
func Search(uid uint32, dirs []string, found func(path string)) (all bool) {
	looks, named := MaxLooks, map[string]bool{}
	all = true
	search := func(top string, below error) {
		fd, err := unix.Open(top, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			all = all && err == unix.ENOENT
			return
		}
		seen := func(path string, st *unix.Stat_t) error {
			if looks--; looks < 0 {
				return errEnough
			}
			if st.Uid == uid && !named[path] {
				named[path] = true
				found(path)
			}
			if path == top {
				return nil
			}
			return below
		}
		unseen := func(string, error) { all = all && below != nil }
		err = sys.Walk{Seen: seen, Unseen: unseen}.From(fd, top)
		all = all && err == nil
	}
	for _, dir := range dirs {
		search(dir, nil)
	}
	search("/tmp", fs.SkipDir)
	search("/var/tmp", fs.SkipDir)
	return all
}
