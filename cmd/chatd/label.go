package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func labelCommand() *cli.Command {
	return &cli.Command{
		Name:      "label",
		Usage:     "change the labels of a chat",
		ArgsUsage: "CHAT KEY=VALUE|KEY-...",
		Description: "KEY=VALUE sets a label, KEY- takes it away; the others stay. Prints the labels\n" +
			"that the chat has then.\n\n" +
			"   chatd label 0123456789abcdef team=ops ticket-",
		Action: label,
	}
}

func label(c *cli.Context) error {
	if c.NArg() < 2 {
		return fmt.Errorf("cannot label: want one CHAT, and KEY=VALUE or KEY-: %w", chat.ErrInvalid)
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	p, err := labelChanges(c.Args().Tail())
	if err != nil {
		return err
	}
	ch, err := client(c).Patch(c.Context, id, p)
	if err != nil {
		return err
	}
	return answer(c, ch, func(w io.Writer) error {
		for _, k := range slices.Sorted(maps.Keys(ch.Labels)) {
			if _, err := fmt.Fprintf(w, "%s=%s\n", k, cell(ch.Labels[k])); err != nil {
				return err
			}
		}
		return nil
	})
}

// labelChanges reads KEY=VALUE and KEY- arguments.
func labelChanges(args []string) (chat.Patch, error) {
	p := chat.Patch{Labels: map[string]*string{}}
	for _, a := range args {
		k, v, set := strings.Cut(a, "=")
		value := &v
		if !set {
			k, set = strings.CutSuffix(a, "-")
			value = nil
		}
		if _, twice := p.Labels[k]; !set || k == "" || twice {
			return p, fmt.Errorf("cannot label with %s: want KEY=VALUE or KEY-, each key once: %w", chat.Quote(a), chat.ErrInvalid)
		}
		p.Labels[k] = value
	}
	return p, p.Validate()
}
