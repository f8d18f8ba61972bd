package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func shareCommand() *cli.Command {
	return &cli.Command{
		Name:      "share",
		Usage:     "copy one regular file from a chat to another",
		ArgsUsage: "CHAT PATH TO [TO-PATH]",
		Description: "The file is read as the one chat and written as the other, and the rules of both decide.\n" +
			"The audit log gets its SHA-256. It is the only way across. TO-PATH is PATH if it is left\n" +
			"out, and PATH then is below the home.\n\n" +
			"   chatd share CHAT report.pdf OTHER\n" +
			"   chatd share CHAT /tmp/report.pdf OTHER in/report.pdf",
		Action: share,
	}
}

func share(c *cli.Context) error {
	if c.NArg() < 3 || c.NArg() > 4 {
		return fmt.Errorf("cannot share: want CHAT PATH TO [TO-PATH], got %d arguments: %w", c.NArg(), chat.ErrInvalid)
	}
	from, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	to, err := chatArg(c.Args().Get(2))
	if err != nil {
		return err
	}
	s := chat.Share{Path: c.Args().Get(1), To: to, ToPath: c.Args().Get(3)}
	if err := s.Validate(); err != nil {
		return err
	}
	done := progress(c, "copying")
	got, err := client(c).Share(c.Context, from, s)
	done()
	if err != nil {
		return err
	}
	return answer(c, got, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "%s  %d bytes to %s\n", cell(got.SHA256), got.Bytes, cell(got.ToPath)); err != nil {
			return fmt.Errorf("cannot write the output: %w", err)
		}
		return nil
	})
}
