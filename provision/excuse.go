package provision

import (
	"os/exec"
	"slices"

	"github.com/chatd/chatd/chat"
)

// excusable returns the layers of a session that config excuses and that the
// first probe may find missing. After that probe none is excused: a session that
// does not come up is then a failure, not a property of the host.
func (m *Manager) excusable() []chat.LayerName {
	if m.settled.Load() {
		return nil
	}
	var may []chat.LayerName
	for _, l := range []chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp, chat.LayerProc, chat.LayerNetwork, chat.LayerPrivileges} {
		if slices.Contains(m.opt.AllowMissing, l) && !m.without(l) {
			may = append(may, l)
		}
	}
	return may
}

// fixSession guesses why no session comes up, and returns a fix.
func fixSession() string {
	for _, tool := range []string{"bwrap", "tmux", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "apt-get install bubblewrap tmux util-linux"
		}
	}
	return "bubblewrap must be able to make user namespaces: see user.max_user_namespaces, kernel.unprivileged_userns_clone and, on Ubuntu, kernel.apparmor_restrict_unprivileged_userns"
}
