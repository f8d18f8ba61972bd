package main

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

// answer writes v as JSON with --json, else text. It returns err if there is one, and writes nothing.
func answer(c *cli.Context, v any, err error, text string) error {
	return answerBy(c, v, err, func(w io.Writer) error { return printer.Write(w, text) })
}

// answerBy is [answer] with what people writes in place of a text.
func answerBy(c *cli.Context, v any, err error, people func(io.Writer) error) error {
	switch {
	case err != nil:
		return err
	case c.Bool("json"):
		return printer.JSON(c.App.Writer, v)
	}
	return people(c.App.Writer)
}

// onChat is a command about one CHAT: it asks the daemon, and text is the answer for people. what is
// shown while it lasts.
func onChat[R any](
	what string, ask func(*client.Client, context.Context, chat.ID) (R, error), text func(R) string,
) cli.ActionFunc {
	return ofChat(func(c *cli.Context, id chat.ID) error {
		done := progress(c, what)
		v, err := ask(daemon(c), c.Context, id)
		done()
		return answer(c, v, err, text(v))
	})
}

// failure is why nothing was done to one of several, in --json.
type failure struct {
	Kind  string `json:"kind,omitempty"`
	Error string `json:"error,omitempty"`
}

func failureOf(err error) failure {
	if err == nil {
		return failure{}
	}
	return failure{client.Kind(err), err.Error()}
}

// eachOf does something to each of several, and goes on after an error. With --json the lines are a
// list at the end; people read what was said of each as soon as it is done: one may take hours.
func eachOf[T, L any](
	c *cli.Context, doing string, all []T, do func(T) (line L, said string, err error),
) error {
	lines, failed := []L{}, error(nil)
	for i, one := range all {
		done := progress(c, fmt.Sprintf("%s %d of %d", doing, i+1, len(all)))
		line, said, err := do(one)
		done()
		lines, failed = append(lines, line), cmp.Or(failed, err)
		to := c.App.Writer
		if err != nil {
			to = c.App.ErrWriter
		}
		if !c.Bool("json") {
			if err := printer.Write(to, said+"\n"); err != nil {
				return err
			}
		}
		if c.Context.Err() != nil {
			break // Ctrl-C: the rest is not tried, and is not in the list
		}
	}
	if err := answer(c, lines, nil, ""); err != nil || c.Context.Err() != nil {
		return cmp.Or(err, failed)
	}
	if failed != nil {
		return &exitError{chat.ExitCode(failed)}
	}
	return nil
}

// action is one of a command's: which flags it knows, and how many arguments after CHAT it wants.
type action struct {
	flags      string
	least, max int
	do         func(*cli.Context, chat.ID, []string) error
}

// doAction does the action that the first argument names.
func doAction(c *cli.Context, want string, actions map[string]action) error {
	name, rest, of := c.Args().First(), c.Args().Tail(), c.Command.Name
	a, ok := actions[name]
	if !ok {
		return chat.Invalid("cannot do %s %s: want %s", of, chat.Quote(name), want)
	}
	if n := len(rest) - 1; n < a.least || n > a.max {
		return chat.Invalid("cannot do %s %s: got %d arguments, see chatd %[1]s --help", of, name, len(rest))
	}
	for _, f := range c.LocalFlagNames() {
		if !slices.Contains(strings.Fields(a.flags+" json socket"), f) {
			return chat.Invalid("cannot use --%s: %s %s has no such flag", f, of, name)
		}
	}
	id, err := chatArg(rest[0])
	if err != nil {
		return err
	}
	return a.do(c, id, rest[1:])
}

// each is what read makes of every text.
func each[R any](texts []string, read func(string) (R, error)) (all []R, err error) {
	for _, text := range texts {
		one, err := read(text)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// progress shows on a terminal that something is under way, until the returned
// func is called. NO_COLOR or TERM=dumb means a plain line without movement.
func progress(c *cli.Context, what string) (done func()) {
	return printer.Progress(c.App.ErrWriter, what, plainProgress())
}

// plainProgress reports a terminal that wants no movement.
func plainProgress() bool {
	return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
}

// helpText has a page for each command: "# NAME ARGUMENTS", a line of usage and, below an empty
// line, the description.
//
//go:embed help.txt
var helpText string

// helpPages are the pages of helpText by the name of their command.
var helpPages = sync.OnceValue(func() map[string]string {
	pages := map[string]string{}
	for page := range strings.SplitSeq("\n"+helpText, "\n# ") {
		pages[page[:strings.IndexAny(page+"\n", " \n")]] = page
	}
	return pages
})

// command is the command of that name, with its page of helpText.
func command(name string, run cli.ActionFunc, flags ...cli.Flag) *cli.Command {
	head, text, _ := strings.Cut(helpPages()[name], "\n")
	c := &cli.Command{Name: name, Action: run, Flags: flags}
	_, c.ArgsUsage, _ = strings.Cut(head, " ")
	c.Usage, c.Description, _ = strings.Cut(strings.TrimSpace(text), "\n\n")
	return c
}
