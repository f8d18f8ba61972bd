package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func createCommand() *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "create the chat of an external id, or find it",
		ArgsUsage: "EXTERNAL-ID",
		Description: "Creates a user, a home and a session, and prints the chat's id. The same owner\n" +
			"and external id always give the same chat. EXTERNAL-ID is any text of up to 512\n" +
			"bytes; put -- in front of one that begins with a dash.\n\n" +
			"   chatd create 'telegram:-100123' --profile web --label team=ops\n" +
			"   chatd create --asleep -- '-rf'",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "profile", Usage: "the `NAME` of the policy (default: default, also called shell)"},
			&cli.StringFlag{Name: "agent", Usage: "the `NAME` of the agent (default: main)"},
			&cli.StringFlag{Name: "owner", Usage: "whose chat it is; for operators (default: who asks)"},
			&cli.StringSliceFlag{Name: "env", Usage: "a variable `NAME=VALUE` of its terminal and runs, no secret; may be given again"},
			&cli.StringSliceFlag{Name: "label", Usage: "a note `KEY=VALUE`; may be given again"},
			&cli.BoolFlag{Name: "asleep", Usage: "no session yet"},
		},
		Action: create,
	}
}

func create(c *cli.Context) error {
	if c.NArg() != 1 {
		return fmt.Errorf("cannot create: want one EXTERNAL-ID, got %d arguments: %w", c.NArg(), chat.ErrInvalid)
	}
	labels, err := pairs("label", c.StringSlice("label"))
	if err != nil {
		return err
	}
	env, err := pairs("env", c.StringSlice("env"))
	if err != nil {
		return err
	}
	if len(env) == 0 {
		env = nil
	}
	awake := !c.Bool("asleep")
	spec := chat.Spec{ExternalID: c.Args().First(), Owner: c.String("owner"), Profile: c.String("profile"),
		Agent: c.String("agent"), Env: env, Labels: labels, Awake: &awake}
	if err := spec.Validate(); err != nil {
		return err
	}
	done := progress(c, "creating")
	made, _, err := client(c).Create(c.Context, spec)
	done()
	if err != nil {
		return err
	}
	if len(made.Ignored) > 0 {
		fmt.Fprintf(c.App.ErrWriter, "chatd: the chat is there, and its labels stay as they are: %s not changed; see chatd label --help\n", strings.Join(made.Ignored, ", "))
	}
	return answer(c, made, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, made.ID)
		return err
	})
}

// pairs reads KEY=VALUE arguments.
func pairs(flag string, args []string) (map[string]string, error) {
	out := map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if _, twice := out[k]; !ok || k == "" || twice {
			return nil, fmt.Errorf("cannot use --%s %s: want KEY=VALUE, each key once: %w", flag, chat.Quote(a), chat.ErrInvalid)
		}
		out[k] = v
	}
	return out, nil
}
