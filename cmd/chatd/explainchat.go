package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

// explainChat asks the daemon about a chat: by the rules that hold for it now, and
// by the names that links have in its view.
func explainChat(c *cli.Context) error {
	for _, name := range []string{"agent", "cwd"} {
		if c.IsSet(name) {
			return chat.Invalid("cannot use --%s: it goes with --policy", name)
		}
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return fmt.Errorf("cannot explain: want --policy FILE, or CHAT and PATH: %w", err)
	}
	q, err := questionOfFlags(c)
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		return err
	}
	a, err := daemon(c).Explain(c.Context, id, q)
	if q.Host != "" {
		return answerExplained(c, a, err, printer.Destination(a))
	}
	return answerExplained(c, a, err, printer.Explained(q.Command, a))
}

// answerExplained is answer, with the exit code of a denial for what is denied.
func answerExplained(c *cli.Context, a chat.Explained, err error, text string) error {
	if err := answer(c, a, err, text); err != nil {
		return err
	}
	if a.Verdict == "deny" || a.Guard != nil && a.Guard.Verdict == "deny" {
		return &exitError{chat.ExitCode(chat.ErrDenied)}
	}
	return nil
}

// questionOfFlags is what the arguments behind CHAT and the flags ask.
func questionOfFlags(c *cli.Context) (chat.Question, error) {
	q := chat.Question{Path: c.Args().Get(1), Command: c.String("command")}
	given := c.NArg() - 1
	for _, name := range []string{"command", "to"} {
		if c.IsSet(name) {
			given++
		}
	}
	switch {
	case given != 1:
		const want = "want CHAT and one PATH or --command or --to"
		return q, chat.Invalid("cannot explain: %s, got %d arguments", want, c.NArg())
	case c.IsSet("to"):
		to, err := chat.ParseDestination(c.String("to"))
		q.Host, q.Port, q.UDP = to.Host, to.Port, to.UDP
		return q, err
	case q.Command == "":
		q.Op = c.String("op")
	}
	return q, nil
}
