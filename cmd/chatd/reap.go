package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

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
	out := c.App.ErrWriter
	if err := printer.Loss(out, chats, time.Now()); err != nil {
		return false, err
	}
	what := "this chat"
	if len(ids) > 1 {
		what = fmt.Sprintf("these %d chats", len(ids))
	}
	if _, err := fmt.Fprintf(out, "Reap %s, with all files? [y/N] ", what); err != nil {
		return false, fmt.Errorf("cannot ask: %w", err)
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

// reapEach reaps the chats one after the other, and returns the first error.
func reapEach(
	c *cli.Context, ids []chat.ID, check func(*cli.Context, chat.ID) error,
) (lines []reapLine, failed error) {
	for i, id := range ids {
		done := progress(c, fmt.Sprintf("reaping %d of %d", i+1, len(ids)))
		line, err := reapLine{ID: id}, check(c, id)
		if err == nil {
			line.Archive, err = reapOne(c, id)
		}
		done()
		line.Reaped = err == nil
		if err != nil {
			line.Kind, line.Error = client.Kind(err), err.Error()
			if failed == nil {
				failed = err
			}
		}
		lines = append(lines, line)
	}
	return lines, failed
}
