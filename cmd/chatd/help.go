package main

import (
	_ "embed"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
)

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
