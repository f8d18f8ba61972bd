package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/printer"
)

// explainChat asks the daemon about a chat: by the rules that hold for it now, and
// by the names that links have in its view.
func explainChat(c *cli.Context) error {
	for _, name := range []string{"agent", "cwd"} {
		if c.IsSet(name) {
			return fmt.Errorf("cannot use --%s: it goes with --policy: %w", name, chat.ErrInvalid)
		}
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return fmt.Errorf("cannot explain: want --policy FILE, or CHAT and PATH: %w", err)
	}
	q := chat.Question{Path: c.Args().Get(1), Command: c.String("command")}
	if c.NArg() > 2 || (c.NArg() == 2) == c.IsSet("command") {
		return fmt.Errorf("cannot explain: want CHAT and one PATH or --command, got %d arguments: %w", c.NArg(), chat.ErrInvalid)
	}
	if q.Command == "" {
		q.Op = c.String("op")
	}
	if err := q.Validate(); err != nil {
		return err
	}
	a, err := client(c).Explain(c.Context, id, q)
	if err != nil {
		return err
	}
	return answer(c, a, func(w io.Writer) error { return printer.Explained(w, q.Command, a) })
}
