package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
)

// chatCommands make chats, and say and change what is kept of them.
func chatCommands() []*cli.Command {
	plan := boolFlag("plan", "show what its session is made of")
	return []*cli.Command{createCommand(), lsCommand(), command("show", ofChat(show), plan), setCommand(),
		command("label", chatAnd(1, "cannot label: want one CHAT, and KEY=VALUE or KEY-", label)),
		command("egress", chatAnd(0, "cannot show egress: want one CHAT, and ENTRY or ENTRY-", egress))}
}

func createCommand() *cli.Command {
	return command("create", create,
		textFlag("profile", "the `NAME` of the policy (default: default, also called shell)"),
		textFlag("agent", "the `NAME` of the agent (default: main)"),
		textFlag("owner", "whose chat it is; for operators (default: who asks)"),
		again("env", "a variable `NAME=VALUE` of its terminal and runs, no secret"),
		again("label", "a note `KEY=VALUE`"),
		listFlag("egress",
			"a destination `ENTRY` beyond the profile's, see chatd egress --help; may be given again"),
		boolFlag("asleep", "no session yet"),
		boolFlag("unarchive",
			"make it of the newest archive of its conversation, if there is one and no chat"),
	)
}

func create(c *cli.Context) error {
	if c.NArg() != 1 {
		return chat.Invalid("cannot create: want one EXTERNAL-ID, got %d arguments", c.NArg())
	}
	labels, err := pairs("label", textsOf(c, "label"))
	if err != nil {
		return err
	}
	env, err := pairs("env", textsOf(c, "env"))
	if err != nil {
		return err
	}
	if len(env) == 0 {
		env = nil
	}
	add, err := each(c.StringSlice("egress"), chat.ParseAllow)
	if err != nil {
		return err
	}
	awake := !c.Bool("asleep")
	spec := chat.Spec{ExternalID: c.Args().First(), Owner: c.String("owner"), Profile: c.String("profile"),
		Agent: c.String("agent"), Env: env, EgressAdd: add, Labels: labels, Awake: &awake,
		Unarchive: c.Bool("unarchive")}
	if err := spec.Validate(); err != nil {
		return err
	}
	done := progress(c, "creating")
	made, _, err := daemon(c).Create(c.Context, spec)
	done()
	if len(made.Ignored) > 0 {
		fmt.Fprintf(c.App.ErrWriter,
			"chatd: the chat is there, and stays as it is: %s not changed; see chatd set --help\n",
			strings.Join(made.Ignored, ", "))
	}
	return answer(c, made, err, string(made.ID)+"\n")
}

// pairs reads KEY=VALUE arguments.
func pairs(flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if _, twice := out[k]; !ok || k == "" || twice {
			return nil, chat.Invalid("cannot use --%s %s: want KEY=VALUE, each key once", flag, chat.Quote(a))
		}
		out[k] = v
	}
	return out, nil
}

func show(c *cli.Context, id chat.ID) error {
	if c.Bool("plan") {
		p, err := daemon(c).Plan(c.Context, id)
		return answer(c, p, err, printer.Plan(p))
	}
	ch, err := daemon(c).Get(c.Context, id)
	var l chat.EgressLog
	if err == nil && !c.Bool("json") {
		l, err = daemon(c).EgressLog(c.Context, id)
	}
	return answer(c, ch, err, printer.Chat(ch, l, time.Now()))
}

func label(c *cli.Context, id chat.ID) error {
	p, err := labelChanges(c.Args().Tail())
	if err != nil {
		return err
	}
	ch, err := daemon(c).Patch(c.Context, id, p)
	return answer(c, ch, err, printer.Labels(ch.Labels))
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
			return p, chat.Invalid("cannot label with %s: want KEY=VALUE or KEY-, each key once",
				chat.Quote(a))
		}
		p.Labels[k] = value
	}
	return p, p.Validate()
}

// lifeCommands change whether a chat is awake, and whether it is there.
func lifeCommands() []*cli.Command {
	return []*cli.Command{
		command("wake", onChat("waking", (*client.Client).Wake, stateLine)),
		command("sleep", onChat("putting to sleep", (*client.Client).Sleep, stateLine)),
		command("freeze", onChat("freezing", (*client.Client).Freeze, stateLine)),
		command("thaw", onChat("thawing", (*client.Client).Thaw, stateLine)),
		reapCommand(),
	}
}

// stateLine is a chat as wake, sleep, freeze and thaw leave it.
func stateLine(ch chat.Chat) string {
	state := map[bool]string{true: "awake", false: "asleep"}[ch.Awake]
	return fmt.Sprintln(ch.ID, cmp.Or(ch.Frozen.Words(), state))
}

func lsCommand() *cli.Command {
	return command("ls", alone(ls),
		textFlag("label", "only chats with `KEY=VALUE`, or KEY with any value"),
		textFlag("profile", "only chats of this `NAME`d policy"),
		textFlag("owner", "only chats of this owner"),
		textFlag("external-id", "only the chats of this external id"),
		boolFlag("disk", "count what each home takes up, file by file"),
		boolFlag("awake", "only chats with a session; --awake=false only without"),
	)
}

func ls(c *cli.Context) error {
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
