//go:build e2e

package vagrant

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestHostDoctor: every wall stands. network is weaker where a profile shares the
// host's network and the kernel's Landlock does not scope abstract sockets, which
// Debian 12's does not.
func TestHostDoctor(t *testing.T) {
	useProfiles(t)
	h := host(t)
	expect.True(t, len(h.Missing) == 0 && len(h.Allowed) == 0 && len(h.Findings) == 0,
		"missing %v, allowed to miss %v, findings %q", h.Missing, h.Allowed, h.Findings)
	if len(h.Layers) != len(chat.LayerNames()) {
		t.Errorf("%d layers, want %d", len(h.Layers), len(chat.LayerNames()))
	}
	for _, l := range h.Layers {
		expect.True(t, l.State == chat.LayerOn && l.By != "" && l.Probe != "", "%+v, want on", l)
	}
	checkChatLayers(t, create(t, ""))
}

// checkChatLayers: a chat has every wall in full.
func checkChatLayers(t *testing.T, c chat.Chat) {
	for _, l := range get(t, c.ID).Layers {
		expect.True(t, l.State == chat.LayerOn, "of chat %s: %+v", c.ID, l)
		by := map[chat.LayerName]string{chat.LayerTmp: "pam_namespace", chat.LayerMemory: "cgroup v2", chat.LayerPids: "cgroup v2", chat.LayerCPU: "cgroup v2"}[l.Name]
		expect.True(t, strings.Contains(l.By, by), "%s is by %q, want %q", l.Name, l.By, by)
	}
}
