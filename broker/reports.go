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
	explain = by("explain", func(ctx context.Context, c *call, a namedQuestion) (chat.Explained, error) {
		return c.root.Explain(ctx, c.Chat, a.question())
	})
	egressLog = plain("egress_log", Root.EgressLog)
	plan      = plain("plan", Root.Plan)
	host      = by("host", func(ctx context.Context, c *call, _ nothing) (chat.Host, error) {
		return c.root.Host(ctx)
	})
	status = by("status", func(ctx context.Context, c *call, _ nothing) (chat.Status, error) {
		return c.root.Status(ctx)
	})
	backup = by("backup", func(ctx context.Context, c *call, _ nothing) (chat.Backup, error) {
		return c.root.Backup(ctx)
	})

	reportVerbs = verbs{explain, egressLog, plan, host, status, backup}
)

// Explain is [Reports].
func (c *Client) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return explain.ask(ctx, c, id, namedQuestion{q, q.Named})
}

// EgressLog is [Reports].
func (c *Client) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	return egressLog.ask(ctx, c, id, nothing{})
}

// Plan is [Reports].
func (c *Client) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) {
	return plan.ask(ctx, c, id, nothing{})
}

// Host is [Reports].
func (c *Client) Host(ctx context.Context) (chat.Host, error) {
	return host.ask(ctx, c, "", nothing{})
}

// Status is [Reports].
func (c *Client) Status(ctx context.Context) (chat.Status, error) {
	return status.ask(ctx, c, "", nothing{})
}

// Backup is [Reports].
func (c *Client) Backup(ctx context.Context) (chat.Backup, error) {
	return backup.ask(ctx, c, "", nothing{})
}
