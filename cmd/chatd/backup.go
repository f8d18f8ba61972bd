package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/front/printer"
)

func backUp(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	done := progress(c, "backing up")
	b, err := daemon(c).Backup(c.Context)
	done()
	return answer(c, b, err, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d chats, audit log to line %d\n", printer.Escape(b.Path),
			b.Chats, b.AuditSeq)
		return err
	})
}
