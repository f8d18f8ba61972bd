package pathclass

import (
	"testing"

	"github.com/chatd/chatd/internal/sys"
)

// TestTreeCacheOverOverlays: sessions have overlays of their own over one tree, with device
// numbers that the kernel gives again; what counts is what they are over.
func TestTreeCacheOverOverlays(t *testing.T) {
	k := &Walker{Source: Source{Rules: []byte("rules")}}
	overlay := func(dev, source string) treeKey {
		return keyOf(k, &Base{Mount: sys.Mount{Dev: dev, Root: "/", Path: "/usr", Kind: "overlay", Source: source}})
	}
	if overlay("0:50", "chatd-fe00-2") != overlay("0:51", "chatd-fe00-2") {
		t.Error("two overlays over one tree are two trees")
	}
	if overlay("0:50", "chatd-fe00-2") == overlay("0:50", "chatd-fe00-3") {
		t.Error("an overlay over another tree is the same where it has the same device")
	}
	if overlay("0:50", "docker") == overlay("0:51", "docker") {
		t.Error("overlays of others are told by their names")
	}
}
