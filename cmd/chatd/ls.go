package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

func lsCommand() *cli.Command {
	return command("ls", ls,
		&cli.StringFlag{Name: "label", Usage: "only chats with `KEY=VALUE`, or KEY with any value"},
		&cli.StringFlag{Name: "profile", Usage: "only chats of this `NAME`d policy"},
		&cli.StringFlag{Name: "owner", Usage: "only chats of this owner"},
		&cli.StringFlag{Name: "external-id", Usage: "only the chats of this external id"},
		&cli.BoolFlag{Name: "disk", Usage: "count what each home takes up, file by file"},
		&cli.BoolFlag{Name: "awake", Usage: "only chats with a session; --awake=false only without"},
	)
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
	chats, err := listAll(c.Context, daemon(c), f, func(ch chat.Chat) bool {
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
	return answer(c, chats, nil, printer.Chats(chats, disk, time.Now()))
}

// listAll reads every page and keeps what the daemon cannot filter on.
func listAll(
	ctx context.Context, api *client.Client, f chat.Filter, keep func(chat.Chat) bool,
) ([]chat.Chat, error) {
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
