package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func egress(c *cli.Context, id chat.ID) error {
	changes, err := each(c.Args().Tail(), parseEntry)
	if err != nil {
		return err
	}
	ch, err := daemon(c).Get(c.Context, id)
	if err != nil {
		return err
	}
	if len(changes) > 0 {
		after := applyEgress(ch, changes)
		p := chat.Patch{EgressAdd: &after.Add, EgressRemove: &after.Remove}
		if ch, err = daemon(c).Patch(c.Context, id, p); err != nil {
			return err
		}
	}
	return answer(c, ch, nil, printer.Egress(ch))
}

// egressEntry is one entry of the command line.
type egressEntry struct {
	chat.Allow
	away bool
}

// parseEntry reads ENTRY, or ENTRY- for one that goes.
func parseEntry(text string) (egressEntry, error) {
	text, away := strings.CutSuffix(text, "-")
	a, err := chat.ParseAllow(text)
	return egressEntry{a, away}, err
}

// applyEgress returns the lists of the chat after the changes.
func applyEgress(ch chat.Chat, changes []egressEntry) chat.EgressChange {
	c := chat.EgressChange{Add: slices.Clone(ch.EgressAdd), Remove: slices.Clone(ch.EgressRemove)}
	for _, e := range changes {
		to, from := &c.Add, &c.Remove
		if e.away {
			to, from = from, to
		}
		i := slices.Index(*from, e.Allow)
		switch {
		case i >= 0:
			*from = slices.Delete(*from, i, i+1)
		case !slices.Contains(*to, e.Allow) && (e.away || !slices.Contains(ch.Egress, e.Allow)):
			*to = append(*to, e.Allow)
		}
	}
	return c
}
