package enforcer

import (
	"context"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/quota"
)

const (
	// refusedLook is how often the enforcer is asked.
	refusedLook = 2 * time.Second
	// refusedTimeout bounds the enforcer's answer.
	refusedTimeout = 5 * time.Second
	// Each chat gets refusedBurst lines immediately, and one more every refusedEvery. Further
	// refusals are counted, and become one line every refusedEvery. So no chat fills the log,
	// and none takes another's lines.
	refusedBurst = 20
	refusedEvery = time.Minute
)

// refusals are the recent refusals of opens, by chat.
type refusals struct {
	now   func() time.Time
	mu    sync.Mutex
	chats map[chat.ID]*refusedOf
}

// refusedOf is a chat's allowance of lines, and its count of refusals without a line.
type refusedOf struct {
	lines  *quota.Allowance
	unsaid uint64
	summed time.Time // when the last line with a count was written
}

// Refusal is a line about opens that file rules refused.
type Refusal struct {
	Chat chat.ID
	// Sum says that the line is about several files, which had no lines of their own.
	Sum bool
	// Path is the file; "" if it has no path that the enforcer can read, and in a sum. By is the
	// name by which the rules close it: its own, one that it had, or would have; "" if unknown.
	Path, By string
	// Times is the number of opens.
	Times uint64
	// Unsaid means that the chat has no line left: the next sum counts it.
	Unsaid bool
}

// FollowRefused calls line for opens that were refused, until ctx ends; the last lines come after
// that. It does not ask while needed reports that no session has rules: the enforcer ends once no
// client asks.
func (c *Client) FollowRefused(ctx context.Context, needed func() bool, line func(Refusal)) {
	look := func() {
		if needed() {
			c.TakeRefused(context.WithoutCancel(ctx), line)
		}
		c.sumRefused(ctx.Err() != nil, line)
	}
	chat.Every(ctx, refusedLook, look)
	look()
}

// TakeRefused asks the enforcer for the opens that it refused since the last call. It calls line
// for each file, and counts what is over its chat's allowance. When TakeRefused
// returns, each refusal that it, or a call at the same time, has taken is written.
func (c *Client) TakeRefused(ctx context.Context, line func(Refusal)) {
	ctx, cancel := context.WithTimeout(ctx, refusedTimeout)
	defer cancel()
	c.refused.mu.Lock()
	defer c.refused.mu.Unlock()
	for more := true; more; {
		a, err := c.ask(ctx, orders.Order{Verb: orders.Refused})
		if err != nil { // it has ended, which reconcile finds
			c.opt.Log.Debug("cannot ask which opens were refused", "error", err)
			return
		}
		for _, r := range a.Refused {
			c.refused.take(r, line)
		}
		more = a.MoreRefused
	}
}

// take passes on the counts of one chat. The caller holds the lock.
func (r *refusals) take(counts orders.Refusals, line func(Refusal)) {
	of := r.of(counts.Chat)
	of.unsaid += counts.More
	for _, f := range counts.Files {
		unsaid := !of.lines.Take()
		if unsaid {
			of.unsaid += f.Times
		}
		line(Refusal{
			Chat: counts.Chat, Path: string(f.Path), By: string(f.By), Times: f.Times, Unsaid: unsaid,
		})
	}
}

// of returns the entry of a chat, and makes it if there is none. The caller holds the lock.
func (r *refusals) of(id chat.ID) *refusedOf {
	if r.chats[id] == nil {
		r.chats[id] = &refusedOf{lines: quota.NewAllowance(refusedBurst, refusedEvery, r.now)}
	}
	return r.chats[id]
}

// sumRefused calls line with the number of a chat's refusals without a line, for each chat at most
// once every refusedEvery. The last call tells all of them.
func (c *Client) sumRefused(last bool, line func(Refusal)) {
	c.refused.mu.Lock()
	defer c.refused.mu.Unlock()
	for id, of := range c.refused.chats {
		switch {
		case of.unsaid == 0 && of.lines.Full():
			delete(c.refused.chats, id)
		case of.unsaid > 0 && (last || c.refused.now().Sub(of.summed) >= refusedEvery):
			line(Refusal{Chat: id, Sum: true, Times: of.unsaid})
			of.unsaid, of.summed = 0, c.refused.now()
		}
	}
}
