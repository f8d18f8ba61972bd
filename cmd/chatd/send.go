package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func sendCommand() *cli.Command {
	return &cli.Command{
		Name:      "send",
		Usage:     "type into a chat's terminal; this wakes a sleeping one",
		ArgsUsage: "CHAT TEXT…|-",
		Description: "Types the words with spaces between them and presses Enter. - types what chatd\n" +
			"reads. --keys presses keys by their tmux(1) names in place of text.\n\n" +
			"   chatd send CHAT make test\n" +
			"   chatd send CHAT -- -rf\n" +
			"   chatd send CHAT --keys C-c,Up,Enter",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "no-enter", Usage: "do not press Enter after the text"},
			&cli.StringSliceFlag{Name: "keys", Usage: "press these `KEYS`, with commas between them"},
		},
		Action: send,
	}
}

func send(c *cli.Context) error {
	if c.NArg() == 0 {
		return fmt.Errorf("cannot send: want CHAT and a text: %w", chat.ErrInvalid)
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	words := c.Args().Tail()
	in := chat.Input{Text: strings.Join(words, " "), Keys: c.StringSlice("keys")}
	if len(words) == 1 && words[0] == "-" {
		if in.Text, err = readText(c.App.Reader, chat.MaxInput); err != nil {
			return err
		}
	}
	in.Enter = len(in.Keys) == 0 && !c.Bool("no-enter")
	if len(words) == 0 && len(in.Keys) == 0 {
		return fmt.Errorf("cannot send: want a text, - or --keys: %w", chat.ErrInvalid)
	}
	if err := in.Validate(); err != nil {
		return err
	}
	defer progress(c, "typing")()
	return client(c).Input(c.Context, id, in)
}
