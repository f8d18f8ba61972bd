package uplink

import (
	"errors"
	"net/netip"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
)

// Verb is what a [Call] asks for.
type Verb string

// The calls of chatd-root.
const (
	// Hello is the first call: Upstreams are the DNS servers. The answer has the chats that are
	// open from an earlier chatd-root.
	Hello Verb = "hello"
	// Open begins to carry for a chat: Allow is where it may connect. With it come the listener
	// for TCP and the socket for datagrams in the chat's network, and the file of its names. A
	// chat that is open is closed first.
	Open Verb = "open"
	// Change replaces Allow of an open chat; connections that it no longer lists end before the
	// answer.
	Change Verb = "change"
	// Close ends all connections of a chat and forgets it. The answer for an unknown chat is
	// success.
	Close Verb = "close"
	// Connections asks for what of a chat is carried now.
	Connections Verb = "connections"
	// Resolve asks whether a chat would be connected to Port of Host, which it lists, or why its
	// name does not lead there now. Nothing is connected.
	Resolve Verb = "resolve"
	// Secrets replaces what chatd-egress puts into requests. With it comes a file of memory, which
	// package secret packed: no message has a value. Another one has the authorities by which the
	// servers of secrets are known, as PEM; an empty one changes none.
	Secrets Verb = "secrets"
)

// The calls of chatd-egress.
const (
	// Socket asks for an unconnected, non-blocking socket of the chat's uid in the host's network:
	// UDP or TCP, IPv6 or IPv4.
	Socket Verb = "socket"
	// Upstream asks for a non-blocking socket to the DNS server with the number Server, in the
	// order of Hello, for a chat: connected for UDP, connecting for TCP.
	Upstream Verb = "upstream"
	// Reply asks for a datagram socket in the chat's network that is bound to Local, an address
	// outside, and connected to Remote, a socket of the chat; for a raw one where the chat has the
	// port for itself.
	Reply Verb = "reply"
	// Certificate asks for a key and a certificate of Host, which the chat has a secret for. They
	// come as PEM in a file of memory.
	Certificate Verb = "certificate"
	// Events reports what became of connections, and how many of a chat are carried now: at most
	// MaxEvents of Events and of Carried. One that is not answered is made again with its number,
	// Report, before there is another, and is taken once.
	Events Verb = "events"
)

// MaxEvents is how many events, and how many chats, a report has at most.
const MaxEvents = 100

// Event is an event of a chat.
type Event struct {
	Chat chat.ID `json:"chat"`
	chat.EgressEvent
}

// Carried is how many connections and flows of a chat are carried now.
type Carried struct {
	Chat  chat.ID `json:"chat"`
	Count int     `json:"count"`
}

// Call is one question. Which fields a verb reads, its constant says.
type Call struct {
	Verb      Verb             `json:"verb"`
	Chat      chat.ID          `json:"chat,omitempty"`
	Owner     string           `json:"owner,omitempty"` // of the chat, of Open
	Allow     []chat.Allow     `json:"allow,omitempty"`
	Grants    []secret.Grant   `json:"grants,omitempty"` // of Open and Change
	Host      string           `json:"host,omitempty"`
	Port      uint16           `json:"port,omitempty"`
	Upstreams []netip.AddrPort `json:"upstreams,omitempty"`
	Server    int              `json:"server,omitempty"`
	UDP       bool             `json:"udp,omitempty"`
	IPv6      bool             `json:"ipv6,omitempty"`
	Local     netip.AddrPort   `json:"local,omitzero"`
	Remote    netip.AddrPort   `json:"remote,omitzero"`
	Report    uint64           `json:"report,omitempty"`
	Events    []Event          `json:"events,omitempty"`
	Carried   []Carried        `json:"carried,omitempty"`
}

// Answer is the answer to a [Call].
type Answer struct {
	// Error is why the call failed; empty if it did not.
	Error string    `json:"error,omitempty"`
	Chats []chat.ID `json:"chats,omitempty"`
	// Open answers Connections.
	Open *chat.EgressOpen `json:"open,omitempty"`
}

// packet is one message: a call or an answer.
type packet struct {
	ID     uint64  `json:"id"`
	Call   *Call   `json:"call,omitempty"`
	Answer *Answer `json:"answer,omitempty"`
}

// ErrGone is the error of calls on a connection whose other end has ended.
var ErrGone = errors.New("the other process has gone")
