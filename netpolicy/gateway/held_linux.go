package gateway

import (
	"errors"
	"os"
	"sync/atomic"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/netns"
)

// Chat is an awake chat whose connections chatd-egress carries.
type Chat struct {
	ID    chat.ID
	Owner string // whose chats share what all chats share
	UID   uint32
	Allow []chat.Allow
}

// openChat is an open chat with what belongs to it here.
type openChat struct {
	Chat
	ns *netns.Namespace
	// The sockets of its session and the file of its names; nil if only chatd-egress has them,
	// which got them from an earlier chatd-root.
	tcp, udp, names *os.File
	// handed: a chatd-egress has got them. It may have another session's of the same chat.
	handed bool
	// carried is how many connections and flows chatd-egress carries for it, as reported; of
	// Gateway.mu.
	carried int
	// resolving is how many names are looked up for it to explain.
	resolving atomic.Int32
	// Under telling. known: the chatd-egress that answers had this session when it was found.
	// lost is why it does not carry for the chat as it was told; nil if it does.
	known bool
	lost  error
}

func (h *openChat) close() error {
	return errors.Join(h.ns.Close(), uplink.CloseFiles([]*os.File{h.tcp, h.udp, h.names}))
}
