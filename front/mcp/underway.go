package mcp

import (
	"context"
	"sync"

	"github.com/chatd/chatd/chat"
)

// callKey identifies a call of one agent. Its uid and role come from the kernel, so that no agent
// cancels another's call, whatever session and id it names.
type callKey struct {
	uid     uint32
	role    chat.Role
	chat    chat.ID
	session string
	request string
}

// underWay are the calls under way that a notification may cancel: a *context.CancelFunc by [callKey]. The
// zero value is ready.
type underWay struct{ calls sync.Map }

// enter records a call until leave is called. Without a session two agents may both have a call 1,
// so it records none.
func (u *underWay) enter(k callKey, cancel context.CancelFunc) (leave func()) {
	if k.session == "" {
		return func() {}
	}
	u.calls.Store(k, &cancel)
	return func() { u.calls.CompareAndDelete(k, &cancel) } // the agent may have used the id twice
}

func (u *underWay) cancel(k callKey) {
	if c, ok := u.calls.Load(k); ok {
		(*c.(*context.CancelFunc))()
	}
}
