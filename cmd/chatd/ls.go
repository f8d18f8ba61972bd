package main

import (
	"context"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/api"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/printer"
)

func lsCommand() *cli.Command {
	return &cli.Command{
		Name:  "ls",
		Usage: "list the chats you may see",
		Description: "AWAKE is yes,old-plan where the session has something otherwise than its\n" +
			"chat by now: see chatd show. It is yes,frozen where the processes stand still\n" +
			"until the next use, and yes,frozen-until-thawed where an operator froze them.\n" +
			"LAYERS names the walls of a chat that are not fully on; - means all are. DISK is\n" +
			"what a chat has on disk; with --disk, what its home takes up, counted here as root.\n" +
			"The user of chat ID is chat-ID, in ps and ls -l, and its home is named ID; every verb takes either.\n\n" +
			"   chatd ls --awake --label team=ops\n" +
			"   chatd ls --json | jq -r '.[].id'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "label", Usage: "only chats with `KEY=VALUE`, or KEY with any value"},
			&cli.StringFlag{Name: "profile", Usage: "only chats of this `NAME`d policy"},
			&cli.StringFlag{Name: "owner", Usage: "only chats of this owner"},
			&cli.StringFlag{Name: "external-id", Usage: "only the chats of this external id"},
			&cli.BoolFlag{Name: "disk", Usage: "count what each home takes up, file by file"},
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
	disk := map[chat.ID]uint64{}
	if c.Bool("disk") {
		if disk, err = countHomes(c, chats); err != nil {
			return err
		}
	}
	return answer(c, chats, func(w io.Writer) error { return printer.Chats(w, chats, disk, time.Now()) })
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
