package api

import "github.com/chatd/chatd/broker"

// Chats is what can be done to chats. The server does it by one, and [Client] is one.
type Chats = broker.Chats

var _ Chats = (*Client)(nil)
