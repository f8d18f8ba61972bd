package runs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/guard"
	"github.com/chatd/chatd/internal/shell"
)

// checking bounds the commands that are parsed simultaneously: one takes up to 70 MB (shell.Calls).
var checking = make(chat.Turns, 4)

func (c *Chats) Run(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunResult, error) {
	spec, err := c.checkAudited(ctx, id, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	return c.Streams.Run(ctx, id, spec)
}

func (c *Chats) RunTo(
	ctx context.Context, id chat.ID, spec chat.RunSpec, out chat.Output,
) (chat.RunResult, error) {
	if err := spec.CheckStreamed(); err != nil {
		return chat.RunResult{}, err
	}
	spec, err := c.checkAudited(ctx, id, spec)
	if err != nil {
		return chat.RunResult{}, err
	}
	return c.Streams.RunTo(ctx, id, spec, out)
}

func (c *Chats) StartRun(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.Run, error) {
	spec, err := c.checkAudited(ctx, id, spec)
	if err != nil {
		return chat.Run{}, err
	}
	return c.root.StartRun(ctx, id, spec)
}

// checkAudited checks every command of a caller, and has chatd-root audit a refusal by the guard,
// which is a [chat.ErrDenied]. It adds the paths that the command names.
func (c *Chats) checkAudited(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunSpec, error) {
	if err := spec.Validate(); err != nil {
		return spec, err
	}
	spec, err := c.check(ctx, id, spec)
	if d, ok := errors.AsType[*chat.RunDenial](err); ok {
		err = errors.Join(err,
			c.root.RefuseRun(ctx, id, chat.RefusedRun{Argv: spec.CommandLine(), Denial: *d}))
	}
	return spec, err
}

// check compares a command with the guard, and finds the paths that it names. Of a command that
// does not parse to its end it finds those before the error. Such a command runs, and the kernel
// still enforces the file rules.
func (c *Chats) check(ctx context.Context, id chat.ID, spec chat.RunSpec) (chat.RunSpec, error) {
	t, err := c.root.Terms(ctx, id)
	if err != nil || t.ExecOff || !t.Guard.On() {
		return spec, err
	}
	g, err := c.guards.of(t)
	if err != nil {
		return spec, err
	}
	leave, err := checking.Take(ctx)
	if err != nil {
		return spec, err
	}
	defer leave()
	at := guard.Place{Home: t.Home, Cwd: spec.Dir(t.Home)}
	var v guard.Verdict
	if spec.Command != "" {
		v, err = g.Command(spec.Command, at)
	} else {
		v, err = g.Argv(spec.Argv, at)
	}
	if err = cmp.Or(err, v.Err()); err != nil {
		return spec, err
	}
	if spec.Command != "" {
		spec.Named, _ = shell.Named(t.Home, at.Cwd, spec.Command)
	} else {
		spec.Named, _ = shell.NamedByArgv(t.Home, at.Cwd, spec.Argv)
	}
	return spec, nil
}

// guards caches the compiled guards of the profiles. A host has a handful; after a reload new ones
// replace the oldest.
type guards struct {
	mu   sync.Mutex
	last []compiledGuard
}

type compiledGuard struct {
	keys  chat.Guard
	guard *guard.Guard
}

// maxGuards bounds the cache.
const maxGuards = 32

// of is the compiled guard for the terms.
func (g *guards) of(t chat.Terms) (*guard.Guard, error) {
	keys := t.Guard
	keys.SetPlaces(t.Places)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range g.last {
		if one.keys.Equal(keys) {
			return one.guard, nil
		}
	}
	made, err := guard.New(keys)
	if err != nil {
		return nil, err
	}
	if len(g.last) == maxGuards {
		g.last = slices.Delete(g.last, 0, 1)
	}
	g.last = append(g.last, compiledGuard{keys, made})
	return made, nil
}
