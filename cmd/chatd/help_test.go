package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestHelpText: each command has a page of help.txt, and each page a command.
func TestHelpText(t *testing.T) {
	commands := newApp().Commands
	for _, c := range commands {
		if c.Usage == "" {
			t.Errorf("%s has no page", c.Name)
		}
	}
	for line := range strings.Lines(helpText) {
		name, isHead := strings.CutPrefix(strings.TrimSpace(line), "# ")
		name, _, _ = strings.Cut(name, " ")
		if isHead && !slices.ContainsFunc(commands, func(c *cli.Command) bool { return c.Name == name }) {
			t.Errorf("%s has a page, and is no command", name)
		}
	}
}
