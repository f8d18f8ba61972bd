package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
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
		Description: "LAYERS names the walls of a chat that are not fully on; - means all are. DISK, with\n" +
			"--disk, is what the home takes up; it is counted here, which needs root on the host.\n" +
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
	disk := map[chat.ID]string{}
	if c.Bool("disk") {
		if disk, err = countHomes(c, chats); err != nil {
			return err
		}
	}
	return answer(c, chats, func(w io.Writer) error { return table(w, chatRows(chats, disk, time.Now())) })
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

// wordWidth is how much of an external id or of the labels a table shows; --json has all.
const wordWidth = 32

// chatRows has a column for disk if any was counted.
func chatRows(chats []chat.Chat, disk map[chat.ID]string, now time.Time) [][]string {
	head := []string{"ID", "USER", "UID", "PROFILE", "AWAKE", "AGE", "IDLE", "MEMORY", "PIDS", "LAYERS", "OWNER", "EXTERNAL-ID", "LABELS"}
	if len(disk) > 0 {
		head = append(head, "DISK")
	}
	rows := [][]string{head}
	for _, ch := range chats {
		memory, pids := "-", "-"
		if ch.Usage != nil {
			memory, pids = size(ch.Usage.MemoryBytes), fmt.Sprint(ch.Usage.Pids)
		}
		row := []string{string(ch.ID), ch.User, fmt.Sprint(ch.UID), ch.Profile, awakeWord(ch), age(now.Sub(ch.CreatedAt)), age(now.Sub(ch.UsedAt)),
			memory, pids, weakLayers(ch.Layers), ch.Owner, cut(ch.ExternalID, wordWidth), dash(cut(labelWords(ch.Labels), wordWidth))}
		if len(disk) > 0 {
			row = append(row, disk[ch.ID])
		}
		rows = append(rows, row)
	}
	return rows
}

// labelWords are labels as --label takes them.
func labelWords(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, ",")
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
