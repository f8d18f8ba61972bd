package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func archivesCommand() *cli.Command {
	return command("archives", archives,
		&cli.StringFlag{Name: "owner", Usage: "only archives of this owner's chats"},
		&cli.StringFlag{Name: "external-id", Usage: "only those of this external id"},
		&cli.StringFlag{Name: "chat", Usage: "only those of this `CHAT`"},
		&cli.BoolFlag{Name: "verify", Usage: "read them, and say which are whole"},
		&cli.BoolFlag{Name: "remove", Usage: "remove those that are named"},
	)
}

func archives(c *cli.Context) error {
	names, err := each(c.Args().Slice(), chat.ParseArchiveName) // all before anything is done
	if err != nil {
		return err
	}
	f, err := archiveFilter(c)
	if err != nil {
		return err
	}
	verify, remove := c.Bool("verify"), c.Bool("remove")
	if err := checkArchives(names, f, verify, remove); err != nil {
		return err
	}
	switch {
	case remove:
		return removeArchives(c, names)
	case verify && len(names) > 0:
		return verifyArchives(c, names)
	}
	all, err := daemon(c).Archives(c.Context, f)
	if err != nil {
		return err
	}
	if !verify {
		return answer(c, all, nil, printer.Archives(all, time.Now()))
	}
	for _, a := range all {
		names = append(names, a.Name)
	}
	return verifyArchives(c, names)
}

// checkArchives refuses arguments that do not go together.
func checkArchives(names []chat.ArchiveName, f chat.ArchiveFilter, verify, remove bool) error {
	wrong := ""
	switch {
	case verify && remove:
		wrong = "want one of --verify and --remove"
	case remove && len(names) == 0:
		wrong = "--remove wants NAME…"
	case len(names) > 0 && !verify && !remove:
		wrong = "NAME wants --verify or --remove"
	case len(names) > 0 && f != chat.ArchiveFilter{}:
		wrong = "want NAME, or --owner, --external-id and --chat"
	}
	if wrong != "" {
		return chat.Invalid("cannot use the arguments: %s", wrong)
	}
	return nil
}

func archiveFilter(c *cli.Context) (f chat.ArchiveFilter, err error) {
	f = chat.ArchiveFilter{Owner: c.String("owner"), ExternalID: c.String("external-id")}
	if c.IsSet("chat") {
		f.Chat, err = chatArg(c.String("chat"))
	}
	return f, err
}

// archiveLine is one line of archives --verify --json, or with --remove.
type archiveLine struct {
	Name chat.ArchiveName `json:"name"`
	OK   bool             `json:"ok"`
	Size int64            `json:"size,omitempty"`
	failure
}

func verifyArchives(c *cli.Context, names []chat.ArchiveName) error {
	return eachArchive(c, "verifying", names, func(name chat.ArchiveName) (int64, string, error) {
		check, err := daemon(c).VerifyArchive(c.Context, name)
		check.Name = name
		return check.Size, printer.Verified(check), err
	})
}

func removeArchives(c *cli.Context, names []chat.ArchiveName) error {
	return eachArchive(c, "removing", names, func(name chat.ArchiveName) (int64, string, error) {
		return 0, "removed " + string(name), daemon(c).RemoveArchive(c.Context, name)
	})
}

func eachArchive(c *cli.Context, doing string, names []chat.ArchiveName,
	do func(chat.ArchiveName) (size int64, said string, err error),
) error {
	return eachOf(c, doing, names, func(name chat.ArchiveName) (archiveLine, string, error) {
		size, said, err := do(name)
		line := archiveLine{name, err == nil, size, failureOf(err)}
		if err != nil {
			said = fmt.Sprintf("chatd: %s: %s", name, printer.Cell(line.Error))
		}
		return line, strings.TrimSuffix(said, "\n"), err
	})
}
