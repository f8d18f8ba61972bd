package quota

import (
	"maps"
	"sync"
)

// Counter bounds how much each holder has simultaneously.
type Counter struct {
	limit uint64
	mu    sync.Mutex
	held  map[string]uint64
}

// NewCounter returns a counter with the limit for each holder; 0 is not a limit.
func NewCounter(limit int) *Counter {
	return &Counter{limit: uint64(limit), held: map[string]uint64{}}
}

// Take takes one for the holder until it is given back; ok is false where none is free.
func (c *Counter) Take(holder string) (giveBack func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit > 0 && c.held[holder] >= c.limit {
		return func() {}, false
	}
	c.held[holder]++
	return sync.OnceFunc(func() { c.giveBack(holder) }), true
}

func (c *Counter) giveBack(holder string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held[holder]--; c.held[holder] == 0 {
		delete(c.held, holder)
	}
}

// InUse returns how much each holder has; it leaves out holders with none.
func (c *Counter) InUse() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.held)
}
