package broker

import (
	"context"

	"github.com/chatd/chatd/chat"
)

// Reports describe a chat and the host.
type Reports interface {
	// Explain reports whether the chat's file rules allow an operation, or its profile's egress a
	// destination, and by which rule or entry.
	Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error)
	// EgressLog returns what became of the chat's connections since chatd-root began.
	EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error)
	// Plan describes the chat's session: its mounts, rights and environment. It is for operators.
	Plan(ctx context.Context, id chat.ID) (chat.Plan, error)
	// Host describes the machine and its walls.
	Host(ctx context.Context) (chat.Host, error)
	// Status summarizes the daemon's state. It probes nothing, and answers while walls are probed.
	Status(ctx context.Context) (chat.Status, error)
	// Backup writes the daemon's state into an archive. It is for operators.
	Backup(ctx context.Context) (chat.Backup, error)
}

// namedQuestion has the paths that the front found in a command, as namedRun.
type namedQuestion struct {
	chat.Question
	Named []chat.NamedPath `json:"named,omitempty"`
}

func (n namedQuestion) question() chat.Question {
	q := n.Question
	q.Named = n.Named
	return q
}

var (
	explain = verbFunc("explain", func(ctx context.Context, c *call, a namedQuestion) (chat.Explained, error) {
		return c.root.Explain(ctx, c.Chat, a.question())
	})
	egressLog = chatVerb("egress", Root.EgressLog)
	plan      = chatVerb("plan", Root.Plan)
	host      = hostVerb("host", Root.Host)
	status    = hostVerb("status", Root.Status)
	backup    = hostVerb("backup", Root.Backup)
)

// EgressLog returns what became of a chat's connections.
func (c Calls) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	return egressLog.call(ctx, c, id)
}

// Plan describes a chat's session.
func (c Calls) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) { return plan.call(ctx, c, id) }

// Host describes the machine and its walls.
func (c Calls) Host(ctx context.Context) (chat.Host, error) { return host.call(ctx, c, "") }

// Status summarizes the daemon's state.
func (c Calls) Status(ctx context.Context) (chat.Status, error) { return status.call(ctx, c, "") }

// Backup writes the daemon's state into an archive.
func (c Calls) Backup(ctx context.Context) (chat.Backup, error) { return backup.call(ctx, c, "") }

func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return explain.call(ctx, c.Calls, id, namedQuestion{q, q.Named})
}
