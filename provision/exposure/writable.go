package exposure

import (
	"path"

	"github.com/chatd/chatd/chat"
)

// Writable reports whether some of the profiles lets its chats write at or below a path of the
// host, or around it.
func Writable(profiles map[string]chat.Profile, p string) bool {
	for _, profile := range profiles {
		if len(profile.AllowWritePaths) > 0 { // expressions, which may match any path
			return true
		}
		for _, e := range profile.ExposePaths {
			source := path.Clean(e.Source)
			if e.Mode == chat.ReadWrite && (chat.Within(p, source) || chat.Within(source, p)) {
				return true
			}
		}
	}
	return false
}
