package main

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/printer"
)

func backupCommand() *cli.Command {
	return &cli.Command{
		Name:  "backup",
		Usage: "have the daemon write records, key and audit log into one tar",
		Description: "Prints its path: backup.tar in the state directory, which root alone can read and the next\n" +
			"backup replaces. It is the state as it was at one moment, with the install key in clear: keep\n" +
			"it as root's, or encrypt it. Config, homes, temporary directories and terminal logs are not in\n" +
			"it. To restore: stop chatd, unpack the tar into a state directory without a state, start chatd.\n\n" +
			"   chatd backup && cp /var/lib/chatd/backup.tar /mnt\n" +
			"   chatd backup && age -r RECIPIENT /var/lib/chatd/backup.tar >chatd.tar.age\n" +
			"   tar -xpf chatd.tar -C /var/lib/chatd",
		Action: backUp,
	}
}

func backUp(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	done := progress(c, "backing up")
	b, err := client(c).Backup(c.Context)
	done()
	if err != nil {
		return err
	}
	return answer(c, b, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d chats, audit log to line %d\n", printer.Escape(b.Path), b.Chats, b.AuditSeq)
		return err
	})
}
