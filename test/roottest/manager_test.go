package roottest

import (
	"context"

	"github.com/chatd/chatd/front/runs"
	"github.com/chatd/chatd/provision"
)

// manager is a provision.Manager with the front's reading of runs and its speaking with file tools
// above it, and without the front's check of commands. Its Manager alone is chatd-root.
type manager struct {
	below
	*runs.Streams
	*runs.Tools
}

// below has its methods hidden by those of Streams and Tools.
type below struct{ *provision.Manager }

// openManager is provision.Open.
func openManager(ctx context.Context, opt provision.Options) (*manager, error) {
	return above(provision.Open(ctx, opt))
}

// startManager is provision.Start.
func startManager(ctx context.Context, opt provision.Options) (*manager, error) {
	return above(provision.Start(ctx, opt))
}

func above(m *provision.Manager, err error) (*manager, error) {
	if err != nil {
		return nil, err
	}
	return &manager{below{m}, runs.NewStreams(m), runs.NewTools(m)}, nil
}
