package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config/configfile"
)

// timeoutExit is what timeout(1) exits with.
const timeoutExit = 124

func runCommand() *cli.Command {
	return command("run", chatAnd(0, "cannot run: want CHAT and a command", run), append(commandFlags(),
		textFlag("stdin", "what the command reads: this `TEXT`, or - for what chatd reads, all of it first"),
		boolFlag("n", "read no standard input, as within a loop that reads its own"),
		boolFlag("t", "give the command a terminal of its own"),
		boolFlag("background", "print the run's id, and leave it running"),
		boolFlag("open-stdin", "with --background: standard input comes later, by chatd runs --stdin"),
		&cli.DurationFlag{Name: "grace",
			Usage: "the `TIME` it may take to end after SIGTERM, before SIGKILL; at most 30s",
			Value: chat.DefaultGrace.D()},
		textFlag("output-max",
			"with --json or --background: keep `SIZE` of each stream, head and tail, as in 64KiB; 1KiB to 4MiB (default: 1MiB)"),
		timeFlag("timeout", "end the run after this `TIME`, at most the profile's timeout_max", "60s"),
	)...)
}

// commandFlags say what is run.
func commandFlags() []cli.Flag {
	return []cli.Flag{
		textFlag("c", "run `SHELL-TEXT` by sh -c in place of COMMAND"),
		textFlag("cwd", "the working `DIRECTORY` (default: the home; relative: below it)"),
		listFlag("env", "add `NAME=VALUE` to the clean environment; may be given again"),
	}
}

func run(c *cli.Context, id chat.ID) error {
	spec, err := runSpec(c)
	if err != nil {
		return err
	}
	if c.Bool("background") {
		return runInBackground(c, id, spec)
	}
	if c.Bool("json") {
		done := progress(c, "running")
		res, err := daemon(c).Run(c.Context, id, spec)
		done()
		return answer(c, res, err, "")
	}
	return runAttached(c, id, spec)
}

// runInBackground prints the id of a run that goes on.
func runInBackground(c *cli.Context, id chat.ID, spec chat.RunSpec) error {
	r, err := daemon(c).StartRun(c.Context, id, spec)
	return answer(c, r, err, printer.Escape(r.ID)+"\n")
}

// streams passes a run's output on as it comes; where it cannot, the run is ended.
type streams struct {
	to     map[string]io.Writer
	cancel context.CancelFunc
	failed error
}

func (s *streams) write(stream string, p []byte) {
	w := s.to[stream]
	if w == nil || s.failed != nil {
		return
	}
	if s.failed = printer.ChatText(w, string(p)); s.failed != nil {
		s.cancel()
	}
}

func runSpec(c *cli.Context) (chat.RunSpec, error) {
	env, err := pairs("env", c.StringSlice("env"))
	if err != nil {
		return chat.RunSpec{}, err
	}
	spec := chat.RunSpec{Command: c.String("c"), Argv: c.Args().Tail(), Cwd: c.String("cwd"), Env: env,
		Stdin: c.String("stdin"), Timeout: chat.Duration(c.Duration("timeout")),
		Grace: chat.Duration(c.Duration("grace"))}
	if spec.Stdin == "-" {
		if spec.Stdin, err = readText(c.App.Reader, chat.MaxStdin); err != nil {
			return chat.RunSpec{}, err
		}
	}
	if spec.OutputMax, err = outputMax(c); err != nil {
		return chat.RunSpec{}, err
	}
	given := c.IsSet("stdin") || c.Bool("n")
	spec.OpenStdin = c.Bool("open-stdin") || !given && !c.Bool("json") && !c.Bool("background")
	if c.Bool("t") {
		spec.TTY = terminalSize()
	}
	return spec, spec.Validate()
}

// outputMax is what a run may keep of each stream; 0 is the usual.
func outputMax(c *cli.Context) (int64, error) {
	if !c.IsSet("output-max") {
		return 0, nil
	}
	if !c.Bool("json") && !c.Bool("background") {
		return 0, chat.Invalid("cannot use --output-max: the output is passed on as it comes, all of it; want --json or --background with it")
	}
	n, err := configfile.ParseSize(c.String("output-max"))
	if err != nil {
		return 0, fmt.Errorf("cannot use --output-max %w", err)
	}
	return int64(n), nil
}

// writeEnd says how a run ended, and passes its exit code on.
func writeEnd(c *cli.Context, res chat.RunResult) error {
	printer.RunEnd(c.App.ErrWriter, res)
	code := res.Exit
	switch {
	case res.TimedOut:
		code = timeoutExit
	case res.Signal != "":
		code = 128 + signals[res.Signal]
	}
	if code != 0 {
		return &exitError{code}
	}
	return nil
}

// signals has Linux's numbers (signal(7)): a chat runs on Linux, this client may not.
var signals = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8,
	"SIGKILL": 9, "SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15,
	"SIGSTKFLT": 16, "SIGCHLD": 17, "SIGCONT": 18, "SIGSTOP": 19, "SIGTSTP": 20, "SIGTTIN": 21, "SIGTTOU": 22,
	"SIGURG": 23, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGVTALRM": 26, "SIGPROF": 27, "SIGWINCH": 28, "SIGIO": 29,
	"SIGPWR": 30, "SIGSYS": 31,
}

// readText reads all of r, at most limit bytes.
func readText(r io.Reader, limit int64) (string, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", fmt.Errorf("cannot read standard input: %w", err)
	}
	if int64(len(b)) > limit {
		return "", chat.Invalid("cannot read standard input: more than %d bytes", limit)
	}
	return string(b), nil
}
