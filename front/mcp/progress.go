package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
)

// progressEvery is the interval of progress notifications: well within the minute after which
// agents give up. Tests shorten it.
var progressEvery = 5 * time.Second

// reportProgress notifies the agent that the call is still running, until stop returns.
func reportProgress(ctx context.Context, req *sdk.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		began := time.Now()
		chat.Every(ctx, progressEvery, func() {
			took := time.Since(began)
			p := &sdk.ProgressNotificationParams{ProgressToken: token, Progress: took.Seconds(),
				Message: fmt.Sprintf("%s: %s", req.Params.Name, took.Round(time.Second))}
			if req.Session.NotifyProgress(ctx, p) != nil {
				cancel() // the agent is gone, which ends its call
			}
		})
	}()
	return func() { cancel(); <-ended }
}
