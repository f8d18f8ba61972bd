package main

import (
	_ "embed"
	"strings"

	"github.com/urfave/cli/v2"
)

// helpText has a page for each command: "# NAME ARGUMENTS", a line of usage and, below an empty
// line, the description.
//
//go:embed help.txt
var helpText string

// command is the command of that name, with its page of helpText.
func command(name string, run cli.ActionFunc, flags ...cli.Flag) *cli.Command {
	c := &cli.Command{Name: name, Action: run, Flags: flags}
	for page := range strings.SplitSeq("\n"+helpText, "\n# ") {
		head, text, _ := strings.Cut(page, "\n")
		if named, args, _ := strings.Cut(head, " "); named == name {
			c.ArgsUsage = args
			c.Usage, c.Description, _ = strings.Cut(strings.TrimSpace(text), "\n\n")
		}
	}
	return c
}
