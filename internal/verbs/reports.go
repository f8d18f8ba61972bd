package verbs

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

var hostRows = []Row{
	{Route: Route{"explain", "POST", "/v1/chats/{id}/explain", Bridges, JSON, 200,
		"Say whether the file rules allow something, or the egress a destination, and which rule or " +
			"entry says so."},
		Types: typesOf[chat.Question, chat.Explained], Front: Bind(Chats.Explain)},
	{Route: Route{"health", "GET", "/healthz", Anyone, Nothing, 200,
		"Say whether the daemon can begin something: 503 if not, as on a full disk."}},
	{Route: Route{"openapi", "GET", "/openapi.json", Bridges, Nothing, 200,
		"This description (OpenAPI 3.1)."}},
	{Route: Route{"mcp", "POST", "/v1/chats/{id}/mcp", Bridges, JSON, 200,
		"Speak the Model Context Protocol (streamable HTTP, without sessions) to the chat's tools."}},
}

var (
	egress = add(Route{"egress", "GET", "/v1/chats/{id}/egress", Bridges, Nothing, 200,
		"List what became of a chat's connections: allowed, refused and failed ones."},
		OfChat(Base.EgressLog))
	plan = add(Route{"plan", "GET", "/v1/chats/{id}/plan", Operators, Nothing, 200,
		"Show what a chat's session is made of: mounts, rules, names of the environment."},
		OfChat(Base.Plan))
	host = add(Route{"host", "GET", "/v1/host", Operators, Nothing, 200,
		"Describe the host and its walls."}, ofHost(Base.Host))
	status = add(Route{"status", "GET", "/v1/status", Operators, Nothing, 200,
		"Show the daemon at a glance: since when, its chats, the walls that do not stand, " +
			"what is nearly spent, what failed lately."}, ofHost(Base.Status))
	backup = add(Route{"backup", "POST", "/v1/backup", Operators, Nothing, 200,
		"Write records, key and audit log into one tar, which root alone can read."},
		ofHost(Base.Backup))
)

func (c Calls) EgressLog(ctx context.Context, id chat.ID) (chat.EgressLog, error) {
	return egress.Of(ctx, c, id)
}

func (c Calls) Plan(ctx context.Context, id chat.ID) (chat.Plan, error) { return plan.Of(ctx, c, id) }

func (c Calls) Host(ctx context.Context) (chat.Host, error) { return host.Of(ctx, c, "") }

func (c Calls) Status(ctx context.Context) (chat.Status, error) { return status.Of(ctx, c, "") }

func (c Calls) Backup(ctx context.Context) (chat.Backup, error) { return backup.Of(ctx, c, "") }

// Explain reports whether something is allowed, and by which rule or entry.
func (c FrontCalls) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	return Verb[chat.Question, chat.Explained]("explain").Call(ctx, c.Calls, id, q)
}
