package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/filewire"
)

// fileCommands are about a chat's files, and what the rules say of them.
func fileCommands() []*cli.Command {
	return []*cli.Command{filesCommand(), command("share", share), explainCommand(),
		command("policy", policyCheck), hookCommand()}
}

func filesCommand() *cli.Command {
	return command("files", filesTool,
		&cli.Int64Flag{Name: "offset", Usage: "read from this `BYTE`"},
		&cli.Int64Flag{Name: "length", Usage: "read so many `BYTES`", DefaultText: "all"},
		&cli.Int64Flag{Name: "line", Usage: "read from this `LINE`, counted from 1", DefaultText: "1"},
		&cli.Int64Flag{Name: "lines", Usage: "read so many `LINES`", DefaultText: "all"},
		textFlag("old", "the `TEXT` to replace, which must be there exactly once"),
		textFlag("new", "the `TEXT` to put in its place"),
		textFlag("after", "list the entries after this `NAME`"),
		&cli.IntFlag{Name: "limit", Usage: "list at most `N` entries", DefaultText: "1000"},
	)
}

func filesTool(c *cli.Context) error {
	return doAction(c, "read, write, edit, append or ls", map[string]action{
		"read":  {"offset length line lines", 1, 1, readFile},
		"write": {"", 2, 2, writeFile}, "append": {"", 2, 2, appendFile},
		"edit": {"old new", 1, 1, editFile}, "ls": {"after limit", 0, 1, listDir},
	})
}

// readFile streams; with --json it is one page.
func readFile(c *cli.Context, id chat.ID, args []string) error {
	a := filewire.ReadFile{Path: args[0], Offset: c.Int64("offset"), Length: c.Int64("length"),
		Line: c.Int64("line"), Lines: c.Int64("lines")}
	if c.Bool("json") {
		return pageJSON(c, func(begin filewire.Begin) (filewire.Answer, error) {
			return daemon(c).ReadFile(c.Context, id, a, begin)
		})
	}
	a.Stream = true
	out := printer.ChatWriter(c.App.Writer)
	if _, err := daemon(c).ReadFile(c.Context, id, a, func(filewire.Answer) io.Writer {
		return out
	}); err != nil {
		return err
	}
	return out.Close()
}

func listDir(c *cli.Context, id chat.ID, args []string) error {
	a := filewire.ListDir{After: c.String("after"), Limit: c.Int("limit")}
	if len(args) > 0 {
		a.Path = args[0]
	}
	list := func(begin filewire.Begin) (filewire.Answer, error) {
		return daemon(c).ListDir(c.Context, id, a, begin)
	}
	if c.Bool("json") {
		return pageJSON(c, list)
	}
	var b bytes.Buffer
	got, err := list(func(filewire.Answer) io.Writer { return &b })
	if err != nil {
		return err
	}
	if err := printer.ChatText(c.App.Writer, b.String()); err != nil {
		return err
	}
	if got.Truncated {
		fmt.Fprintf(c.App.ErrWriter, "chatd: there are more; go on with --after %s\n",
			chat.Quote(got.NextEntry))
	}
	return nil
}

// pageJSON writes what was read in the form that the API has.
func pageJSON(c *cli.Context, read func(filewire.Begin) (filewire.Answer, error)) error {
	b := bytes.NewBuffer([]byte{})
	a, err := read(func(filewire.Answer) io.Writer { return b })
	if err != nil {
		return err
	}
	return printer.JSON(c.App.Writer, client.NewFileAnswer(a, b.Bytes()))
}

func writeFile(c *cli.Context, id chat.ID, args []string) error {
	return sendFile(c, daemon(c).WriteFile, id, args)
}

func appendFile(c *cli.Context, id chat.ID, args []string) error {
	return sendFile(c, daemon(c).AppendFile, id, args)
}

// sender is WriteFile or AppendFile of a client.
type sender func(context.Context, chat.ID, filewire.WriteFile, io.Reader) (filewire.Answer, error)

// sendFile streams, whatever the text: it may be no UTF-8.
func sendFile(c *cli.Context, send sender, id chat.ID, args []string) error {
	body := io.Reader(strings.NewReader(args[1]))
	if args[1] == "-" {
		body = c.App.Reader
	}
	a, err := send(c.Context, id, filewire.WriteFile{Path: args[0], Stream: true, Hash: c.Bool("json")}, body)
	return fileDone(c, a, err)
}

func editFile(c *cli.Context, id chat.ID, args []string) error {
	a, err := daemon(c).EditFile(c.Context, id,
		filewire.EditFile{Path: args[0], OldText: c.String("old"), NewText: c.String("new")})
	return fileDone(c, a, err)
}

// fileDone writes what was done: the tool's words, and the diff.
func fileDone(c *cli.Context, a filewire.Answer, err error) error {
	return answerBy(c, client.NewFileAnswer(a, nil), err, func(w io.Writer) error {
		return printer.ChatText(w, a.Message+"\n"+a.Diff)
	})
}

func share(c *cli.Context) error {
	if c.NArg() < 3 || c.NArg() > 4 {
		return chat.Invalid("cannot share: want CHAT PATH TO [TO-PATH], got %d arguments", c.NArg())
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
	got, err := daemon(c).Share(c.Context, from, s)
	done()
	return answer(c, got, err, printer.Shared(got))
}
