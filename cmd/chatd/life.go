package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

// lifeCommands change whether a chat is awake, and whether it is there.
func lifeCommands() []*cli.Command {
	return []*cli.Command{
		command("wake", onChat("waking", (*client.Client).Wake, writeState)),
		command("sleep", onChat("putting to sleep", (*client.Client).Sleep, writeState)),
		command("freeze", onChat("freezing", (*client.Client).Freeze, writeState)),
		command("thaw", onChat("thawing", (*client.Client).Thaw, writeState)),
		reapCommand(),
	}
}

func reapCommand() *cli.Command {
	return command("reap", reap,
		&cli.StringFlag{Name: "idle", Usage: "chats not used for this `TIME`: 30d, 2w, 24h or 90m",
			DefaultText: "none"},
		&cli.BoolFlag{Name: "all", Usage: "every chat you may see"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print what would be taken, and end"},
		&cli.BoolFlag{
			Name: "yes", Aliases: []string{"y"},
			Usage: "do not ask; take what --idle or --all names",
		},
		&cli.BoolFlag{Name: "archive", Usage: "archive each first, as chatd archive does"},
	)
}

// reapLine is one line of reap --json.
type reapLine struct {
	ID     chat.ID `json:"id"`
	Reaped bool    `json:"reaped"`
	// Archive is what --archive made.
	Archive chat.ArchiveName `json:"archive,omitempty"`
	Kind    string           `json:"kind,omitempty"`
	Error   string           `json:"error,omitempty"`
}

func reap(c *cli.Context) error {
	ids, err := reapWhich(c)
	if err != nil {
		return err
	}
	named := c.NArg() > 0
	if c.Bool("dry-run") || !named && !c.Bool("yes") {
		return reapDry(c, ids)
	}
	check := func(*cli.Context, chat.ID) error { return nil }
	switch in, asks := terminalIn(c); {
	case c.IsSet("idle"):
		check = stillIdle
	case c.Bool("yes"):
	case asks:
		yes, err := confirmReap(c, in, ids)
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("nothing was reaped")
		}
	default:
		check = notAtWork
	}
	results, failed := reapEach(c, ids, check)
	if err := answerReaped(c, results, false); err != nil {
		return err
	}
	if failed != nil {
		return &exitError{chat.ExitCode(failed)}
	}
	return nil
}

// reapDry prints what would be taken. Without --dry-run it is an error that --yes is missing.
func reapDry(c *cli.Context, ids []chat.ID) error {
	results := []reapLine{}
	for _, id := range ids {
		results = append(results, reapLine{ID: id})
	}
	if err := answerReaped(c, results, true); err != nil {
		return err
	}
	if !c.Bool("dry-run") && len(ids) > 0 {
		return chat.Invalid("cannot reap %d chats without --yes", len(ids))
	}
	return nil
}

func answerReaped(c *cli.Context, results []reapLine, dry bool) error {
	if results == nil {
		results = []reapLine{} // in JSON a list
	}
	return answer(c, results, nil, func(w io.Writer) error {
		return writeReaped(w, c.App.ErrWriter, results, dry)
	})
}

// stillIdle looks at a chat of --idle again: reaping those before it took time.
func stillIdle(c *cli.Context, id chat.ID) error {
	ch, err := daemon(c).Get(c.Context, id)
	if err != nil {
		return err
	}
	idle, err := idleFlag(c)
	if err != nil {
		return err
	}
	if time.Since(ch.UsedAt) < idle {
		return fmt.Errorf("cannot reap chat %s as idle: it is in use again: %w", id, chat.ErrBusy)
	}
	return nil
}

// reapOne reaps a chat, with --archive once it is archived.
func reapOne(c *cli.Context, id chat.ID) (chat.ArchiveName, error) {
	if c.Bool("archive") {
		a, err := daemon(c).ReapArchived(c.Context, id)
		return a.Name, err
	}
	return "", daemon(c).Reap(c.Context, id)
}

// idleFlag is the time of --idle; 0 without it.
func idleFlag(c *cli.Context) (time.Duration, error) {
	if !c.IsSet("idle") {
		return 0, nil
	}
	idle, err := chat.ParseAge(c.String("idle"))
	if err != nil || idle <= 0 {
		return 0, chat.Invalid("cannot reap --idle %s: want a time above 0, as in 30d, 24h or 90m",
			chat.Quote(c.String("idle")))
	}
	return idle, nil
}

func writeReaped(w, errOut io.Writer, results []reapLine, dry bool) error {
	for _, r := range results {
		out, line := w, "reaped "+string(r.ID)
		switch {
		case dry:
			line = "would reap " + string(r.ID)
		case !r.Reaped:
			out, line = errOut, "chatd: "+string(r.ID)+": "+printer.Escape(r.Error)
		case r.Archive != "":
			line += ", archived as " + printer.Cell(string(r.Archive))
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return fmt.Errorf("cannot write the output: %w", err)
		}
	}
	return nil
}

// reapWhich is the chats that the arguments name. Exactly one way of naming them
// may be used.
func reapWhich(c *cli.Context) ([]chat.ID, error) {
	ways := 0
	for _, used := range []bool{c.NArg() > 0, c.IsSet("idle"), c.Bool("all")} {
		if used {
			ways++
		}
	}
	if ways != 1 {
		return nil, chat.Invalid("cannot reap: want CHAT…, --idle or --all, and one of them")
	}
	if c.NArg() > 0 {
		return reapNamed(c.Args().Slice())
	}
	idle, err := idleFlag(c)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	chats, err := listAll(c.Context, daemon(c), chat.Filter{}, func(ch chat.Chat) bool {
		return c.Bool("all") || now.Sub(ch.UsedAt) >= idle
	})
	ids := []chat.ID{}
	for _, ch := range chats {
		ids = append(ids, ch.ID)
	}
	return ids, err
}

// reapNamed checks every argument before anything is taken.
func reapNamed(args []string) ([]chat.ID, error) {
	ids := []chat.ID{}
	for _, a := range args {
		id, err := chatArg(a)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// writeState is a chat as wake, sleep, freeze and thaw leave it.
func writeState(w io.Writer, ch chat.Chat) error {
	state := map[bool]string{true: "awake", false: "asleep"}[ch.Awake]
	_, err := fmt.Fprintln(w, ch.ID, cmp.Or(ch.Frozen.Words(), state))
	return err
}
