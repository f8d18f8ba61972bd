package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func reapCommand() *cli.Command {
	return command("reap", reap,
		&cli.StringFlag{Name: "idle", Usage: "chats not used for this `TIME`: 30d, 2w, 24h or 90m",
			DefaultText: "none"},
		boolFlag("all", "every chat you may see"),
		boolFlag("dry-run", "print what would be taken, and end"),
		&cli.BoolFlag{
			Name: "yes", Aliases: []string{"y"},
			Usage: "do not ask; take what --idle or --all names",
		},
		boolFlag("archive", "archive each first, as chatd archive does"),
	)
}

// reapLine is one line of reap --json.
type reapLine struct {
	ID     chat.ID `json:"id"`
	Reaped bool    `json:"reaped"`
	// Archive is what --archive made.
	Archive chat.ArchiveName `json:"archive,omitempty"`
	failure
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
	return eachOf(c, "reaping", ids, func(id chat.ID) (line reapLine, said string, err error) {
		line.ID, said = id, "reaped "+string(id)
		if err = check(c, id); err == nil {
			line.Archive, err = reapOne(c, id)
		}
		line.Reaped, line.failure = err == nil, failureOf(err)
		if err != nil {
			said = "chatd: " + string(id) + ": " + printer.Escape(line.Error)
		} else if line.Archive != "" {
			said += ", archived as " + printer.Cell(string(line.Archive))
		}
		return line, said, err
	})
}

// reapDry prints what would be taken. Without --dry-run it is an error that --yes is missing.
func reapDry(c *cli.Context, ids []chat.ID) error {
	results, text := []reapLine{}, ""
	for _, id := range ids {
		results, text = append(results, reapLine{ID: id}), text+fmt.Sprintln("would reap", id)
	}
	if err := answer(c, results, nil, text); err != nil {
		return err
	}
	if !c.Bool("dry-run") && len(ids) > 0 {
		return chat.Invalid("cannot reap %d chats without --yes", len(ids))
	}
	return nil
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
		return each(c.Args().Slice(), chatArg) // all before anything is taken
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

// maxAsked is how many chats are looked at before the question; of more only the number is said.
const maxAsked = 50

// confirmReap asks on a terminal whether the chats may be reaped, and says what would be lost. It
// returns false if not.
func confirmReap(c *cli.Context, in *os.File, ids []chat.ID) (bool, error) {
	var chats []chat.Chat
	for _, id := range ids[:min(len(ids), maxAsked)] {
		ch, err := daemon(c).Get(c.Context, id)
		if err != nil {
			continue // the reap says it
		}
		chats = append(chats, ch)
	}
	what := "this chat"
	if len(ids) > 1 {
		what = fmt.Sprintf("these %d chats", len(ids))
	}
	question := fmt.Sprintf("%sReap %s, with all files? [y/N] ", printer.Loss(chats, time.Now()), what)
	if err := printer.Write(c.App.ErrWriter, question); err != nil {
		return false, err
	}
	switch firstLine(c.Context, in) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// firstLine is the first line of the input in lower case; empty at the end of ctx, which Ctrl-C
// ends, or of the input.
func firstLine(ctx context.Context, in io.Reader) string {
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		first <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-first:
		return line
	case <-ctx.Done():
		return ""
	}
}

// terminalIn is standard input, if it is a terminal and somebody reads the question.
func terminalIn(c *cli.Context) (*os.File, bool) {
	in, ok := c.App.Reader.(*os.File)
	return in, ok && term.IsTerminal(int(in.Fd())) && printer.IsTerminal(c.App.ErrWriter)
}

// notAtWork refuses a chat that is at work: nobody was asked about what it would lose.
func notAtWork(c *cli.Context, id chat.ID) error {
	ch, err := daemon(c).Get(c.Context, id)
	if err != nil || len(ch.Work) == 0 {
		return err
	}
	return fmt.Errorf("cannot %s chat %s: it is at work (%s); --yes %[1]ss it all the same: %[4]w",
		c.Command.Name, id, printer.WorkWords(ch), chat.ErrBusy)
}
