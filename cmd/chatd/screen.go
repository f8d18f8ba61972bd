package main

import (
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

func screenCommand() *cli.Command {
	return &cli.Command{
		Name:      "screen",
		Usage:     "show what a chat's terminal shows",
		ArgsUsage: "CHAT",
		Description: "Control bytes are escaped when standard output is a terminal.\n\n" +
			"   chatd screen CHAT\n   chatd screen CHAT --json | jq .cursor_row",
		Action: screen,
	}
}

func screen(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	s, err := client(c).Screen(c.Context, id)
	if err != nil {
		return err
	}
	return answer(c, s, func(w io.Writer) error {
		text := s.Text
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return writeChatText(w, text)
	})
}
