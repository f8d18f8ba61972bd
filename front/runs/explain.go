package runs

import (
	"context"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/guard"
	"github.com/chatd/chatd/internal/shell"
)

const denied = "deny"

// Explain is [verbs.Chats]. It judges by everything that can refuse: chatd-root answers for rules
// and egress, and the plan of the session tells what the kernel shows and refuses. Nothing is tried.
func (c *Chats) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	t, err := c.root.Terms(ctx, id)
	if err != nil {
		return chat.Explained{}, err
	}
	var e chat.Explained
	var writes []shell.Arg
	if q.Command == "" {
		e, err = c.root.Explain(ctx, id, q)
	} else {
		e, writes, err = c.explainCommand(ctx, id, t, q)
	}
	if err != nil {
		return e, err
	}
	// A plan names paths of the host, and the caller is told none: it may ask, for its chat answered.
	plan, err := c.root.Plan(chat.WithCaller(ctx, chat.Caller{Role: chat.RoleOperator}), id)
	if err != nil {
		return e, err
	}
	j := judge{plan: plan, e: &e}
	j.reported(q)
	switch {
	case q.Path != "":
		name := filerules.Fold(t.Home, t.Home, q.Path)
		if err = j.workspace(t, filewire.Op(q.Op), name); err == nil {
			j.path(name, q.Op == "write" || q.Op == "edit")
		}
	case q.Command != "":
		for _, name := range e.Paths {
			j.path(name, slices.ContainsFunc(writes, func(w shell.Arg) bool { return w.Text == name }))
		}
		if plan.Network == chat.NetworkNone {
			e.Why = "this chat has no network: " + noNetwork
		}
	}
	if len(e.DeniedBy) > 0 {
		e.Verdict = denied
	}
	return e, err
}

// explainCommand returns the verdict of the file rules on the paths of a command, and the guard's,
// with the files that its redirects write.
func (c *Chats) explainCommand(
	ctx context.Context, id chat.ID, t chat.Terms, q chat.Question,
) (e chat.Explained, writes []shell.Arg, err error) {
	g, err := c.guards.of(t)
	if err != nil {
		return e, nil, err
	}
	leave, err := checking.Take(ctx)
	if err != nil {
		return e, nil, err
	}
	// chatd-root asks the chat about links, which may take a minute: nobody's turn lasts so long.
	v, guarded, wrong := func() (v guard.Verdict, guarded, wrong error) {
		defer leave()
		v, guarded = g.Command(q.Command, guard.Place{Home: t.Home, Cwd: t.Home})
		q.Named, wrong = shell.Named(t.Home, t.Home, q.Command)
		walk, _ := shell.Calls(q.Command, t.Home, t.Home) // wrong is its error too
		for _, one := range walk.Calls {
			writes = append(writes, one.Writes...)
		}
		return v, guarded, wrong
	}()
	if e, err = c.root.Explain(ctx, id, q); err == nil && e.Verdict != denied {
		err = wrong
	}
	if err != nil {
		return chat.Explained{}, nil, err
	}
	if guarded == nil {
		e.Guard = v.Explained()
	}
	return e, writes, guarded
}
