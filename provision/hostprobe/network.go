package hostprobe

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/netpolicy/netns"
	"github.com/chatd/chatd/provision/layers"
)

// ownNetwork is the layer network of sessions out of which chatd-egress carries connections: that
// of a session without a way out, of which inside are the layers, and the redirect.
func ownNetwork(inside []chat.Layer) chat.Layer {
	i := slices.IndexFunc(inside, func(l chat.Layer) bool { return l.Name == chat.LayerNetwork })
	if i < 0 { // it is left out
		return chat.Layer{Name: chat.LayerNetwork, State: chat.LayerUnknown}
	}
	l := inside[i]
	if l.State == chat.LayerOff {
		return l
	}
	if err := netns.Try(); err != nil {
		return layers.Failed(l, err, "load the kernel modules nf_tables and nft_tproxy")
	}
	l.By += ", nftables"
	l.Probe += "; a connection to an address outside comes to chatd, and tells where it goes"
	return l
}
