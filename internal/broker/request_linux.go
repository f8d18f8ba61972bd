package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// Bounds on how long a front may take to send a request, and to take a packet.
const (
	requestTime = 30 * time.Second
	packetTime  = 2 * time.Minute
)

// nameOf is the one verb that is not a method of [verbs.Root].
var nameOf = verb("name_of", func(c *call, _ context.Context, _ chat.ID, uid uint32) (string, error) {
	return c.s.opt.NameOf(uid)
})

// NameOf is the name of a user of the host.
func (c *Client) NameOf(uid uint32) (string, error) {
	return nameOf.Call(context.Background(), c.Calls, "", uid)
}

// read reads and checks the request.
func (s *Server) read(c *call) (verbs.Handler[*call], error) {
	if err := c.hearBy(time.Now().Add(requestTime)); err != nil {
		return nil, err
	}
	parts := parts{large: s.large}
	defer parts.drop()
	for whole := false; !whole; {
		err := c.recv(func(k kind, p []byte) error {
			if k != request && k != requestEnd {
				return fmt.Errorf("cannot use a packet %q for a request", k)
			}
			whole = k == requestEnd
			return parts.add(p, whole, func(all []byte) error { return decode(all, &c.message) })
		})
		if err != nil {
			return nil, chat.Invalid("%w", err)
		}
	}
	return c.check()
}

// check refuses an invalid request before any of it is used.
func (c *call) check() (verbs.Handler[*call], error) {
	do, known := handlers[c.Verb]
	if !known {
		return nil, chat.Invalid("cannot do %s: no such verb", chat.Quote(c.Verb))
	}
	if c.Chat != "" {
		if _, err := chat.ParseID(string(c.Chat)); err != nil {
			return nil, err
		}
	}
	switch c.Caller.Role {
	case "", chat.RoleOperator, chat.RoleBridge:
	default:
		return nil, chat.Invalid("cannot use role %s", chat.Quote(string(c.Caller.Role)))
	}
	if len(c.Caller.Name) > maxCallerName {
		return nil, chat.Invalid("cannot use a caller's name of %d bytes: want at most %d",
			len(c.Caller.Name), maxCallerName)
	}
	return do, c.hearBy(time.Time{})
}

// maxCallerName is more than useradd(8) takes.
const maxCallerName = 256
