package files

import (
	"errors"
	"path"

	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"golang.org/x/sys/unix"
)

// sendLinks reports the names that links lead elsewhere, in the chat's view and with the chat's
// rights, and those that it may not use there. It reads links and opens nothing.
func (s *toolCall) sendLinks(names []string) error {
	var out filewire.Message
	size := 0
	for i, name := range names {
		to := filerules.Physical(name)
		no := refused(to)
		if to == path.Clean(name) && no == "" {
			continue
		}
		out.Links = append(out.Links, filewire.Link{N: i, To: to, No: no})
		if size += len(to); size > filewire.MaxSaid/16 { // in JSON a byte may be six
			if err := filewire.WriteLine(s.w, out); err != nil {
				return err
			}
			out.Links, size = nil, 0
		}
	}
	if len(out.Links) == 0 {
		return nil
	}
	return filewire.WriteLine(s.w, out)
}

// refused is what [Link.No] says of a name. Of a name that is not there it says whether the chat may
// make it in its directory.
func refused(name string) (no string) {
	may := func(name string, mode uint32) error {
		return unix.Faccessat(unix.AT_FDCWD, name, mode, unix.AT_EACCESS)
	}
	gone := may(name, unix.F_OK)
	switch {
	case errors.Is(gone, unix.ENOENT) && may(path.Dir(name), unix.W_OK|unix.X_OK) != nil:
		return "w"
	case errors.Is(gone, unix.ENOENT):
		return ""
	case may(name, unix.R_OK) != nil:
		no = "r"
	}
	if may(name, unix.W_OK) != nil {
		no += "w"
	}
	return no
}
