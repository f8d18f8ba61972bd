package hostprobe

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/layers"
	"github.com/chatd/chatd/netns"
)

// ownNetwork is the layer network of sessions out of which chatd-egress carries connections: that
// of a session without a way out, and the redirect.
func ownNetwork(none []chat.Layer) []chat.Layer {
	i := slices.IndexFunc(none, func(l chat.Layer) bool { return l.Name == chat.LayerNetwork })
	if i < 0 {
		return nil
	}
	l := none[i]
	if l.State == chat.LayerOff {
		return []chat.Layer{l}
	}
	if err := netns.Try(); err != nil {
		return []chat.Layer{layers.Failed(l, err,
			"load the kernel modules nf_tables and nft_tproxy")}
	}
	l.By += ", nftables"
	l.Probe += "; a connection to an address outside comes to chatd, and tells where it goes"
	return []chat.Layer{l}
}
