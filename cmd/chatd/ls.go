package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
)

func lsCommand() *cli.Command {
	return &cli.Command{
		Name:  "ls",
		Usage: "list the chats you may see",
		Description: "LAYERS names the walls of a chat that are not fully on; - means all are.\n\n" +
			"   chatd ls --awake --label team=ops\n" +
			"   chatd ls --json | jq -r '.[].id'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "label", Usage: "only chats with `KEY=VALUE`, or KEY with any value"},
			&cli.StringFlag{Name: "profile", Usage: "only chats of this `NAME`d policy"},
			&cli.StringFlag{Name: "owner", Usage: "only chats of this owner"},
			&cli.StringFlag{Name: "external-id", Usage: "only the chats of this external id"},
			&cli.BoolFlag{Name: "awake", Usage: "only chats with a session; --awake=false only without"},
		},
		Action: ls,
	}
}

func ls(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	f := chat.Filter{Owner: c.String("owner"), Label: c.String("label"), ExternalID: c.String("external-id")}
	if c.IsSet("awake") {
		awake := c.Bool("awake")
		f.Awake = &awake
	}
	chats, err := listAll(c.Context, client(c), f, func(ch chat.Chat) bool {
		return c.String("profile") == "" || ch.Profile == c.String("profile")
	})
	if err != nil {
		return err
	}
	return answer(c, chats, func(w io.Writer) error { return table(w, chatRows(chats, time.Now())) })
}

// listAll reads every page and keeps what the daemon cannot filter on.
func listAll(ctx context.Context, api *api.Client, f chat.Filter, keep func(chat.Chat) bool) ([]chat.Chat, error) {
	all := []chat.Chat{}
	for {
		page, err := api.List(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, ch := range page.Chats {
			if keep(ch) {
				all = append(all, ch)
			}
		}
		if page.Next == "" || page.Next == f.Cursor {
			return all, nil
		}
		f.Cursor = page.Next
	}
}

func chatRows(chats []chat.Chat, now time.Time) [][]string {
	rows := [][]string{{"ID", "USER", "UID", "PROFILE", "AWAKE", "AGE", "IDLE", "MEMORY", "PIDS", "LAYERS"}}
	for _, ch := range chats {
		memory, pids := "-", "-"
		if ch.Usage != nil {
			memory, pids = size(ch.Usage.MemoryBytes), fmt.Sprint(ch.Usage.Pids)
		}
		rows = append(rows, []string{string(ch.ID), ch.User, fmt.Sprint(ch.UID), ch.Profile, awakeWord(ch),
			age(now.Sub(ch.CreatedAt)), age(now.Sub(ch.UsedAt)), memory, pids, weakLayers(ch.Layers)})
	}
	return rows
}

// awakeWord is yes or no, or the phase of a chat that is not ready.
func awakeWord(ch chat.Chat) string {
	switch {
	case ch.Phase != chat.Ready:
		return string(ch.Phase)
	case ch.Awake:
		return "yes"
	}
	return "no"
}

func weakLayers(layers []chat.Layer) string {
	var names []string
	for _, l := range layers {
		if l.State != chat.LayerOn {
			names = append(names, string(l.Name))
		}
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ",")
}
