package plan

import (
	"slices"

	"github.com/chatd/chatd/chat"
)

// devices are the host's device files that bubblewrap binds into each /dev.
var devices = []string{"/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"}

// SystemTrees are the directories and files of this host that every session sees.
func SystemTrees() (all []string) {
	for _, m := range (View{}).systemMounts() {
		if m.Type == chat.MountBind {
			all = append(all, m.Source)
		}
	}
	return all
}

// Shared are the paths of the host that several sessions see read-only. Each session should have
// inodes of its own for them. through are the paths that belong to the chat, that every session
// which sees them may write to, or that are masks, which no chat can open.
func (v View) Shared() (shared, through []string) {
	own := []string{v.PromptFIFO, v.LogFIFO, v.PolicyDir}
	for _, m := range v.Masked {
		own = append(own, m.Source)
	}
	shared = slices.Clone(devices)
	for _, m := range v.Mounts() {
		switch {
		case m.Type != chat.MountBind || slices.Contains(through, m.Source):
		case m.Mode == chat.ReadOnly && !slices.Contains(own, m.Source):
			shared = append(shared, m.Source)
		default:
			through = append(through, m.Source)
		}
	}
	return shared, through
}
