package files

import (
	"path"

	"github.com/chatd/chatd/filerules"
)

// sendLinks reports the names that links lead elsewhere, in the chat's view and with the chat's
// rights. It reads links and opens nothing.
func (s *toolCall) sendLinks(names []string) error {
	var out message
	size := 0
	for i, name := range names {
		to := filerules.Physical(name)
		if to == path.Clean(name) {
			continue
		}
		out.Links = append(out.Links, Link{i, to})
		if size += len(to); size > maxSaid/16 { // in JSON a byte may be six
			if err := writeLine(s.w, out); err != nil {
				return err
			}
			out.Links, size = nil, 0
		}
	}
	if len(out.Links) == 0 {
		return nil
	}
	return writeLine(s.w, out)
}
