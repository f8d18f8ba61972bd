package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/termsafe"
)

func screenCommand() *cli.Command {
	return &cli.Command{
		Name:      "screen",
		Usage:     "show what a chat's terminal shows",
		ArgsUsage: "CHAT",
		Description: "Control bytes are escaped when standard output is a terminal. --styles leaves colours and\n" +
			"the like in the text, and nothing else that is no text.\n\n" +
			"   chatd screen CHAT\n   chatd screen CHAT --history 500\n   chatd screen CHAT --styles | less -R\n   chatd screen CHAT --json | jq .cursor_row",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "styles", Usage: "with colours, bold and the like"},
			&cli.IntFlag{Name: "history", Usage: "and this `NUMBER` of lines that were scrolled away, at most 2000"},
		},
		Action: screen,
	}
}

func screen(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	s, err := client(c).ScreenWith(c.Context, id, chat.ScreenSpec{Styles: c.Bool("styles"), History: c.Int("history")})
	if err != nil {
		return err
	}
	return answer(c, s, func(w io.Writer) error {
		text := s.Text
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if c.Bool("styles") {
			return writeStyled(w, text)
		}
		return writeChatText(w, text)
	})
}

// writeStyled lets colours through, and puts them back at the end.
func writeStyled(w io.Writer, text string) error {
	if _, err := io.WriteString(w, termsafe.String(text, termsafe.Styled)+"\x1b[m"); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}
