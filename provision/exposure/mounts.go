package exposure

import (
	"path"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
)

// shownKinds are file systems that show the host's kernel, devices or processes.
var shownKinds = map[string]bool{
	"proc": true, "sysfs": true, "cgroup": true, "cgroup2": true, "devtmpfs": true, "devpts": true,
	"debugfs": true, "tracefs": true,
	"securityfs": true, "bpf": true, "mqueue": true, "efivarfs": true, "binfmt_misc": true, "autofs": true,
	"fusectl": true, "configfs": true, "pstore": true,
}

// origin returns the device that holds p, and the path of p on it, whatever mount shows it.
func (h *Host) origin(p string) sys.Mount {
	var at sys.Mount
	for _, m := range h.mounts { // a later mount hides an earlier one
		if chat.Within(p, m.Path) && len(m.Path) >= len(at.Path) {
			at = m
		}
	}
	at.Root = path.Join(at.Root, strings.TrimPrefix(p, at.Path))
	at.Path = p
	return at
}

// mayExpose refuses a path that holds one of chatd's directories or lies in one, through any
// mount. It also refuses a path below which a file system of the kernel is mounted: mounts below
// a source are exposed with it.
func (h *Host) mayExpose(p string) error {
	seen := []sys.Mount{h.origin(p)}
	for _, m := range h.mounts {
		if m.Path != p && chat.Within(m.Path, p) {
			seen = append(seen, m)
		}
	}
	for _, own := range h.own {
		o := h.origin(own)
		for _, s := range seen {
			if s.Dev == o.Dev && (chat.Within(s.Root, o.Root) || chat.Within(o.Root, s.Root)) {
				return chat.Invalid("cannot use %s: chatd's own %s is in it, or holds it (as %s)",
					chat.Quote(p), chat.Quote(own), chat.Quote(s.Path))
			}
		}
	}
	for _, s := range seen[1:] {
		if shownKinds[s.Kind] {
			return chat.Invalid("cannot use %s: a %s is mounted in it at %s, which shows the host's kernel",
				chat.Quote(p), s.Kind, chat.Quote(s.Path))
		}
	}
	return nil
}

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
