package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
)

func wakeCommand() *cli.Command {
	return &cli.Command{
		Name:        "wake",
		Usage:       "give a chat a session; one that is awake keeps its own",
		ArgsUsage:   "CHAT",
		Description: "   chatd wake CHAT",
		Action:      func(c *cli.Context) error { return change(c, "waking", (*api.Client).Wake) },
	}
}

// change is wake and sleep: a CHAT in, the chat as it is then out.
func change(c *cli.Context, what string, do func(*api.Client, context.Context, chat.ID) (chat.Chat, error)) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	done := progress(c, what)
	ch, err := do(client(c), c.Context, id)
	done()
	if err != nil {
		return err
	}
	return answer(c, ch, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, ch.ID, map[bool]string{true: "awake", false: "asleep"}[ch.Awake])
		return err
	})
}
