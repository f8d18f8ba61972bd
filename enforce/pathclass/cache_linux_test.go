package pathclass

import (
	"testing"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
)

// TestTreeCacheOverOverlays: sessions have overlays of their own over one tree, with device
// numbers that the kernel gives again; what counts is what they are over.
func TestTreeCacheOverOverlays(t *testing.T) {
	k := &Walker{Source: Source{Rules: []byte("rules")}}
	overlay := func(dev, source string) treeKey {
		return keyOf(k, &Base{Mount: sys.Mount{Dev: dev, Root: "/", Path: "/usr", Kind: "overlay", Source: source}})
	}
	expect.True(t, overlay("0:50", "chatd-fe00-2") == overlay("0:51", "chatd-fe00-2"),
		"two overlays over one tree are two trees")
	expect.True(t, overlay("0:50", "chatd-fe00-2") != overlay("0:50", "chatd-fe00-3"),
		"an overlay over another tree is the same where it has the same device")
	expect.True(t, overlay("0:50", "docker") != overlay("0:51", "docker"),
		"overlays of others are told by their names")
}
