package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/provision/enforcer"
	"github.com/chatd/chatd/provision/session"
)

// sessionOf names the chat's session to the enforcer, by its init process.
func sessionOf(c Chat, init *sys.ProcessHandle) enforcer.Session {
	return enforcer.Session{Chat: c.ID, PID: init.PID, Start: init.Start}
}

// MakeMasks makes the sources of the masks that bubblewrap mounts.
func (p *InForce) MakeMasks() error { return p.enforcer.MakeMasks() }

// Masks returns the mounts by which bubblewrap masks what the chat's rules close, in a session of
// view v that begins now.
func (p *InForce) Masks(c Chat, v plan.View) []chat.Exposed {
	if slices.Contains(v.Without, chat.LayerView) || !p.Enforced(c) {
		return nil
	}
	return p.enforcer.Masks(v, p.Closed(c))
}

// Masked returns the denied paths that bubblewrap masks in the session.
func Masked(s *session.Session) []string {
	if masked := s.Masked.Load(); masked != nil {
		return *masked
	}
	return nil
}

// LeftOut returns the denied paths to which Landlock grants nothing in a session of view v.
func LeftOut(v plan.View) []string {
	if slices.Contains(v.Without, chat.LayerLandlock) || len(v.Denied) == 0 {
		return nil
	}
	return v.LeftOut()
}

// Barrier returns what applies the chat's rules to a new session before its program goes on; nil if
// the kernel enforces none of them.
func (p *InForce) Barrier(c Chat) func(context.Context, *sys.ProcessHandle) error {
	if !p.Enforced(c) {
		return nil
	}
	return func(ctx context.Context, init *sys.ProcessHandle) error { return p.applyRules(ctx, c, init) }
}

// Apply applies the rules in force to a session, which may have others, or none.
func (p *InForce) Apply(ctx context.Context, c Chat, init *sys.ProcessHandle) error {
	if !p.Enforced(c) && !p.enforcer.Keeps(ctx, sessionOf(c, init)) {
		return nil
	}
	return p.applyRules(ctx, c, init)
}

func (p *InForce) applyRules(ctx context.Context, c Chat, init *sys.ProcessHandle) error {
	p.mu.Lock()
	p.sessions[c.ID] = true
	p.mu.Unlock()
	return p.enforcer.ApplyRules(ctx, sessionOf(c, init), enforcer.Rules{
		UID: c.UID, Home: c.Home, Agent: c.Agent, Compiled: p.File(c.Profile).Compiled(),
	})
}

// ForgetMasks drops from a session's record the masks of paths that new rules open. The enforcer
// has removed their mounts, and mounts its own if rules close the path again.
func (p *InForce) ForgetMasks(c Chat, s *session.Session, dir session.Dir) error {
	masked, closed := Masked(s), p.Closed(c)
	left := slices.DeleteFunc(slices.Clone(masked), func(path string) bool {
		return !slices.Contains(closed, path)
	})
	if len(left) == len(masked) {
		return nil
	}
	s.Masked.Store(&left)
	return s.Write(dir)
}

// Kept reports whether the rules that the kernel should enforce in a session are enforced in it.
func (p *InForce) Kept(ctx context.Context, c Chat, init *sys.ProcessHandle) bool {
	return !p.Enforced(c) || p.enforcer.Keeps(ctx, sessionOf(c, init))
}

// ViewLayer adds to the layer view how the chat's rules are enforced in its session now.
func (p *InForce) ViewLayer(ctx context.Context, c Chat, s *session.Session, l chat.Layer) chat.Layer {
	if !p.Enforced(c) {
		return l
	}
	return p.enforcer.Layer(ctx, sessionOf(c, s.Init), l, len(Masked(s)))
}

// LandlockLayer adds to the layer landlock the number of denied paths that it enforces in a session
// of view v.
func LandlockLayer(l chat.Layer, v plan.View) chat.Layer {
	if n := len(LeftOut(v)); n > 0 {
		l.Probe += fmt.Sprintf(
			"; file rules: nothing is granted at %d denied paths outside the home", n)
	}
	return l
}

// Began tells that a chat has a session. Until [InForce.Drop], its rules may need the enforcer.
func (p *InForce) Began(id chat.ID) {
	c, err := p.opt.Chat(id)
	p.mu.Lock()
	p.sessions[id] = p.sessions[id] || err == nil && p.Enforced(c)
	p.mu.Unlock()
}

// Drop tells the enforcer that the chat's session has ended, and audits its last refusals. It asks
// for no chat that has no rules and never had: an enforcer that does not answer must not hold it up.
func (p *InForce) Drop(ctx context.Context, id chat.ID) (err error) {
	c, gone := p.opt.Chat(id)
	p.mu.Lock()
	ruled := p.sessions[id]
	p.mu.Unlock()
	if ruled || gone == nil && p.Enforced(c) {
		err = p.enforcer.Drop(ctx, id)
		p.enforcer.TakeRefused(ctx, p.refused(ctx))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, id)
	return err
}

// Follow starts the enforcer again if it ends while a session needs it, and audits the opens that
// it refuses, until ctx ends.
func (p *InForce) Follow(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { p.enforcer.Follow(ctx, p.needed) })
	p.enforcer.FollowRefused(ctx, p.needed, p.refused(context.WithoutCancel(ctx)))
	both.Wait()
}

// needed reports whether a session has rules that the enforcer enforces. A session that has just
// ended counts: the enforcer has its last refusals until Drop.
func (p *InForce) needed() bool {
	p.mu.Lock()
	ids := slices.Collect(maps.Keys(p.sessions))
	p.mu.Unlock()
	return slices.ContainsFunc(ids, func(id chat.ID) bool {
		c, err := p.opt.Chat(id)
		return err == nil && p.Enforced(c)
	})
}
