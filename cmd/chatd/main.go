package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/journal"
)

// version is set by the linker: -ldflags "-X main.version=…".
var version = "dev"

// defaultSocket is where serve listens by default and where clients look.
const defaultSocket = "/run/chatd/chatd.sock"

// interruptedExit is what a shell reports for a command that SIGINT ended.
const interruptedExit = 130

const exitCodes = `EXIT CODES:
   0 done · 1 internal · 2 invalid · 3 denied · 4 not found · 5 exists ·
   6 wrong phase · 69 unsupported here · 75 busy, or no daemon answers
`

func main() {
	// For good: a second signal on the way out, as timeout(1) sends one, changes no exit code.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	os.Exit(mainWith(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr))
}

// mainWith is main with its surroundings; it returns the exit code.
func mainWith(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	app := newApp()
	app.Reader, app.Writer, app.ErrWriter = in, out, errOut
	err := app.RunContext(ctx, flagsFirst(app, args))
	var own *exitError
	if errors.As(err, &own) {
		return own.code
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		fmt.Fprintln(errOut, "chatd: interrupted")
		return interruptedExit
	}
	if err != nil {
		fmt.Fprintf(errOut, "%schatd: %s\n", journal.Priority(errOut), printer.Escape(chat.ErrorText(err)))
	}
	return chat.ExitCode(err)
}

// exitError ends chatd with a code and no words: a run's own exit code, or a
// failure that was already reported.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func newApp() *cli.App {
	app := &cli.App{
		Name:            "chatd",
		Usage:           "give every conversation a Linux user of its own",
		Version:         version,
		HideHelpCommand: true,
		Description: "chatd serve is the service; the other commands ask it over its unix socket.\n" +
			"CHAT is a chat's id (16 hex digits) or its user name (chat- and the id).",
		CustomAppHelpTemplate: cli.AppHelpTemplate + "\n" + exitCodes,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "socket", EnvVars: []string{"CHATD_SOCKET"}, Value: defaultSocket,
				Usage: "the daemon's unix socket", TakesFile: true},
			boolFlag("json", "write one JSON value, for programs"),
		},
		Commands: slices.Concat([]*cli.Command{serveCommand()}, chatCommands(), runCommands(),
			terminalCommands(), lifeCommands(), archiveCommands(), fileCommands(),
			[]*cli.Command{command("mcp", ofChat(serveMCP))}, hostCommands()),
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   usageError,
		Action:         noCommand,
	}
	for _, c := range app.Commands {
		c.OnUsageError = usageError
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate + "\n" + exitCodes
	}
	return app
}

func usageError(_ *cli.Context, err error, _ bool) error {
	return chat.Invalid("cannot use the arguments: %w", err)
}

func noCommand(c *cli.Context) error {
	if c.NArg() == 0 {
		return cli.ShowAppHelp(c)
	}
	return chat.Invalid("cannot do %s: no such command, see chatd --help", chat.Quote(c.Args().First()))
}

// daemon asks the daemon at --socket.
func daemon(c *cli.Context) *client.Client {
	return client.NewClient(client.ClientOptions{Socket: c.String("socket")})
}

// chatArg reads CHAT: an id, or the user name made of it. A prefix is refused:
// what is unambiguous today takes away another chat tomorrow.
func chatArg(s string) (chat.ID, error) {
	return chat.ParseID(strings.TrimPrefix(s, chat.UserPrefix))
}

// ofChat is a command with CHAT as its only argument.
func ofChat(do func(*cli.Context, chat.ID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() != 1 {
			return chat.Invalid("cannot %s: want one CHAT, got %d arguments", c.Command.Name, c.NArg())
		}
		return firstChat(c, do)
	}
}

// chatAnd is a command with CHAT and at least so many other arguments; wrong is the error without.
func chatAnd(others int, wrong string, do func(*cli.Context, chat.ID) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() <= others {
			return chat.Invalid("%s", wrong)
		}
		return firstChat(c, do)
	}
}

func firstChat(c *cli.Context, do func(*cli.Context, chat.ID) error) error {
	id, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	return do(c, id)
}

// alone is a command with nothing but flags.
func alone(do cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if c.NArg() > 0 {
			return chat.Invalid("cannot %s: unexpected argument %s", c.Command.Name, chat.Quote(c.Args().First()))
		}
		return do(c)
	}
}

func textFlag(name, usage string) cli.Flag { return &cli.StringFlag{Name: name, Usage: usage} }

func boolFlag(name, usage string) cli.Flag { return &cli.BoolFlag{Name: name, Usage: usage} }

// listFlag may be given again, or has commas.
func listFlag(name, usage string) cli.Flag { return &cli.StringSliceFlag{Name: name, Usage: usage} }

func timeFlag(name, usage, ofNone string) cli.Flag {
	return &cli.DurationFlag{Name: name, Usage: usage, DefaultText: ofNone}
}

// flagsFirst moves flags in front of the other arguments, up to "--". The flag package stops at the
// first argument that is none, and people write "chatd show CHAT --json". Flags of chatd itself go
// in front of the command.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) == 0 {
		return args
	}
	var global, own, rest []string
	var cmd *cli.Command
	args, name := args[1:], args[0]
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(a) < 2 || a[0] != '-' {
			if cmd == nil && len(rest) == 0 {
				if cmd = app.Command(a); cmd != nil {
					continue
				}
			}
			rest = append(rest, a)
			continue
		}
		to := &own
		takes, known := takesValue(app.Flags, a)
		if cmd == nil || known && !hasFlag(cmd.Flags, a) && !asksForHelp(a) {
			to = &global
		} else {
			takes, _ = takesValue(cmd.Flags, a)
		}
		*to = append(*to, a)
		if takes && !strings.Contains(a, "=") && i+1 < len(args) {
			i++
			*to = append(*to, args[i])
		}
	}
	out := append([]string{name}, global...)
	if cmd == nil {
		return append(out, rest...)
	}
	out = append(append(out, cmd.Name), own...)
	if slices.ContainsFunc(own, asksForHelp) {
		return out // help takes no argument for the name of one of its own commands
	}
	return append(append(out, "--"), rest...)
}

// asksForHelp: behind a command, and what that does, help is about the command.
func asksForHelp(arg string) bool {
	return slices.Contains([]string{"-h", "--h", "-help", "--help"}, arg)
}

func hasFlag(flags []cli.Flag, arg string) bool {
	_, known := takesValue(flags, arg)
	return known
}

func takesValue(flags []cli.Flag, arg string) (takes, known bool) {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			d, ok := f.(cli.DocGenerationFlag)
			return ok && d.TakesValue(), true
		}
	}
	return false, false
}
