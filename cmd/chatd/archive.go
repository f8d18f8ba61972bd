package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

// archiveCommands write chats into archives, and make chats of them again.
func archiveCommands() []*cli.Command {
	return []*cli.Command{archiveCommand(), archivesCommand(), command("unarchive", unarchive)}
}

func archiveCommand() *cli.Command {
	return command("archive", ofChat(archiveChat),
		boolFlag("keep", "keep the chat"),
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask"},
	)
}

func archiveChat(c *cli.Context, id chat.ID) error {
	how := chat.ToArchive{Keep: c.Bool("keep")}
	var work string
	if how.Keep && !c.Bool("yes") {
		ch, err := daemon(c).Get(c.Context, id)
		if err != nil {
			return err
		}
		work, how.StayAwake = printer.WorkWords(ch), len(ch.Work) > 0
	}
	if err := mayArchive(c, id, how); err != nil {
		return err
	}
	done := archiveProgress(c, "archiving", id)
	a, err := daemon(c).Archive(c.Context, id, how)
	done()
	if how.StayAwake && errors.Is(err, chat.ErrBusy) {
		return fmt.Errorf("%w\nthe chat is at work (%s), so it must stay awake; --yes lets it sleep",
			err, work)
	}
	return answer(c, a, err, printer.Archived(a, time.Now()))
}

// mayArchive asks on a terminal. Elsewhere a chat at work is refused: nobody was asked about what it
// would lose.
func mayArchive(c *cli.Context, id chat.ID, how chat.ToArchive) error {
	in, asks := terminalIn(c)
	switch {
	case c.Bool("yes") || how.Keep:
		return nil
	case !asks:
		return notAtWork(c, id)
	}
	ch, err := daemon(c).Get(c.Context, id)
	if err != nil {
		return err
	}
	awake := map[bool]string{true: "awake", false: "asleep"}[ch.Awake]
	fmt.Fprintf(c.App.ErrWriter, "Archive and reap chat %s of %s, %s, %s? [y/N] ", id,
		printer.Cell(ch.Owner), printer.Cell(chat.Quote(ch.ExternalID)), awake)
	switch firstLine(c.Context, in) {
	case "y", "yes":
		return nil
	}
	if err := c.Context.Err(); err != nil {
		return fmt.Errorf("cannot read the answer: %w", err)
	}
	return chat.Invalid("cannot archive chat %s: the answer was not y", id)
}

// archiveProgress shows on a terminal how far the archive or unarchive of a chat is, until the
// returned func is called.
func archiveProgress(c *cli.Context, what string, id chat.ID) (done func()) {
	ctx, cancel := context.WithCancel(c.Context)
	asked := daemon(c)
	end := printer.ArchiveProgress(c.App.ErrWriter, what, plainProgress(),
		func() *chat.ArchiveProgress {
			ch, err := asked.Get(ctx, id)
			if err != nil {
				return nil // the call that it is about says what is wrong
			}
			return ch.Archiving
		})
	return func() {
		cancel()
		end()
		asked.Close()
	}
}

func unarchive(c *cli.Context) error {
	if c.NArg() != 1 {
		return chat.Invalid("cannot unarchive: want one NAME or CHAT, got %d arguments", c.NArg())
	}
	name, err := archiveArg(c, c.Args().First())
	if err != nil {
		return err
	}
	done := archiveProgress(c, "unarchiving", name.ID())
	ch, err := daemon(c).Unarchive(c.Context, name)
	done()
	return answer(c, ch, err, fmt.Sprintf("%s asleep, uid %d, of archive %s\n", ch.ID, ch.UID, name))
}

// archiveArg reads NAME or CHAT; a chat stands for its newest archive.
func archiveArg(c *cli.Context, arg string) (chat.ArchiveName, error) {
	id, err := chatArg(arg)
	if err != nil {
		return chat.ParseArchiveName(arg)
	}
	all, err := daemon(c).Archives(c.Context, chat.ArchiveFilter{Chat: id})
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fmt.Errorf("cannot unarchive chat %s: it has no archive: %w", id,
			chat.ErrNotFound)
	}
	newest := slices.MaxFunc(all, func(a, b chat.Archive) int {
		return a.ArchivedAt.Compare(b.ArchivedAt)
	})
	return chat.ParseArchiveName(string(newest.Name))
}

func archivesCommand() *cli.Command {
	return command("archives", archives,
		textFlag("owner", "only archives of this owner's chats"),
		textFlag("external-id", "only those of this external id"),
		textFlag("chat", "only those of this `CHAT`"),
		boolFlag("verify", "read them, and say which are whole"),
		boolFlag("remove", "remove those that are named"),
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
