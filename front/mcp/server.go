package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// maxLine bounds one message of an agent in bytes: two texts of 1 MiB each, in
// the longest escapes that JSON has.
const maxLine = 16 << 20

const instructions = "The tools act in one chat: a Linux user of its own, with a home, limits and file rules. " +
	"Relative paths begin at its home. A refusal says why, and often what to do instead; to try it by another way does not help."

// newServer returns a server of the tools that announces version.
func newServer(t tools, version string) (*sdk.Server, error) {
	s := sdk.NewServer(&sdk.Implementation{Name: "chatd", Version: version},
		&sdk.ServerOptions{Instructions: instructions,
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	if err := addTools(s, t); err != nil {
		return nil, err
	}
	return s, nil
}

// Serve answers one agent, a message of JSON a line, until in ends or ctx does; then it cancels the
// calls that still run. First it looks the chat up: if this fails, Serve returns the error and
// reads and writes nothing.
func Serve(
	ctx context.Context, chats verbs.Chats, id chat.ID, version string, in io.Reader, out io.Writer,
) error {
	if _, err := chats.Get(ctx, id); err != nil {
		return err
	}
	s, err := newServer(tools{chats: chats, id: id}, version)
	if err != nil {
		return err
	}
	err = s.Run(ctx, &sdk.IOTransport{Reader: io.NopCloser(in), Writer: noClose{out}, MaxLineLength: maxLine})
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot go on with the agent: %w", err)
	}
	return nil
}

// noClose leaves the writer open: it belongs to the caller.
type noClose struct{ io.Writer }

// Close does nothing.
func (noClose) Close() error { return nil }
