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

// underWay are the calls under way that a notification may cancel. The zero value is ready.
type underWay struct {
	mu    sync.Mutex
	calls map[callKey]*context.CancelFunc
}

// enter records a call until leave is called. Without a session two agents may both have a call 1,
// so it records none.
func (u *underWay) enter(k callKey, cancel context.CancelFunc) (leave func()) {
	if k.session == "" {
		return func() {}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[callKey]*context.CancelFunc{}
	}
	mine := &cancel
	u.calls[k] = mine
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.calls[k] == mine { // the agent may have used the id twice
			delete(u.calls, k)
		}
	}
}

func (u *underWay) cancel(k callKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.calls[k]; c != nil {
		(*c)()
	}
}
