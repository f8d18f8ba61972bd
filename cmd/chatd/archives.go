package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
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
	names, err := archiveNames(c.Args().Slice())
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
		return eachArchive(c, names, removeArchive)
	case verify && len(names) > 0:
		return eachArchive(c, names, verifyArchive)
	}
	all, err := daemon(c).Archives(c.Context, f)
	if err != nil {
		return err
	}
	if !verify {
		return answer(c, all, nil, func(w io.Writer) error {
			return printer.Archives(w, all, time.Now())
		})
	}
	for _, a := range all {
		names = append(names, a.Name)
	}
	return eachArchive(c, names, verifyArchive)
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

// archiveNames checks every name before anything is done.
func archiveNames(args []string) (names []chat.ArchiveName, err error) {
	for _, a := range args {
		name, err := chat.ParseArchiveName(a)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
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
	Name  chat.ArchiveName `json:"name"`
	OK    bool             `json:"ok"`
	Size  int64            `json:"size,omitempty"`
	Kind  string           `json:"kind,omitempty"`
	Error string           `json:"error,omitempty"`
}

// archiveAct is what archives does with each.
type archiveAct struct {
	doing string
	do    func(context.Context, *client.Client, chat.ArchiveName) (chat.ArchiveCheck, error)
	say   func(io.Writer, chat.ArchiveCheck) error
}

var (
	verifyArchive = archiveAct{
		doing: "verifying",
		do: func(
			ctx context.Context, c *client.Client, name chat.ArchiveName,
		) (chat.ArchiveCheck, error) {
			return c.VerifyArchive(ctx, name)
		},
		say: printer.Verified,
	}
	removeArchive = archiveAct{
		doing: "removing",
		do: func(
			ctx context.Context, c *client.Client, name chat.ArchiveName,
		) (chat.ArchiveCheck, error) {
			return chat.ArchiveCheck{}, c.RemoveArchive(ctx, name)
		},
		say: func(w io.Writer, check chat.ArchiveCheck) error {
			_, err := fmt.Fprintln(w, "removed "+string(check.Name))
			return err
		},
	}
)

// eachArchive goes on after an error. Each archive has its line as soon as it is done: one may take
// hours.
func eachArchive(c *cli.Context, names []chat.ArchiveName, act archiveAct) error {
	results, failed, json := []archiveLine{}, error(nil), c.Bool("json")
	daemon := daemon(c)
	defer daemon.Close()
	for i, name := range names {
		done := progress(c, fmt.Sprintf("%s %d of %d", act.doing, i+1, len(names)))
		check, err := act.do(c.Context, daemon, name)
		done()
		if c.Context.Err() != nil {
			return err
		}
		check.Name = name
		r := archiveLine{Name: name, OK: err == nil, Size: check.Size}
		if err != nil {
			r.Kind, r.Error = client.Kind(err), err.Error()
			failed = cmp.Or(failed, err)
		}
		results = append(results, r)
		switch {
		case json:
		case r.OK:
			if err := act.say(c.App.Writer, check); err != nil {
				return err
			}
		default:
			fmt.Fprintf(c.App.ErrWriter, "chatd: %s: %s\n", name, printer.Cell(r.Error))
		}
	}
	if json {
		if err := printer.JSON(c.App.Writer, results); err != nil {
			return err
		}
	}
	if failed != nil {
		return &exitError{chat.ExitCode(failed)}
	}
	return nil
}
