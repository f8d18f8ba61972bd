package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

// timeoutExit is what timeout(1) exits with.
const timeoutExit = 124

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run one command in a chat, beside its terminal, and wait for it",
		ArgsUsage: "CHAT -- COMMAND [ARGUMENT…]",
		Description: "Exits with the command's own exit code, 128 and the signal's number when a signal\n" +
			"ended it, 124 when the timeout did. With --json it exits 0 once the command has\n" +
			"ended, however that was.\n\n" +
			"   chatd run CHAT -- ls -l\n" +
			"   chatd run CHAT -c 'make 2>&1 | tail' --cwd src --timeout 10m\n" +
			"   chatd run CHAT --stdin - -- python3 - < script.py",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "c", Usage: "run `SHELL-TEXT` by sh -c in place of COMMAND"},
			&cli.StringFlag{Name: "cwd", Usage: "the working `DIRECTORY` (default: the home; relative: below it)"},
			&cli.StringSliceFlag{Name: "env", Usage: "add `NAME=VALUE` to the clean environment; may be given again"},
			&cli.StringFlag{Name: "stdin", Usage: "what the command reads: - for what chatd reads, else this `TEXT`"},
			&cli.DurationFlag{Name: "timeout", Usage: "end the run after this `TIME`, at most 1h", Value: chat.DefaultTimeout.D()},
		},
		Action: run,
	}
}

func run(c *cli.Context) error {
	if c.NArg() == 0 {
		return fmt.Errorf("cannot run: want CHAT and a command: %w", chat.ErrInvalid)
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	spec, err := runSpec(c)
	if err != nil {
		return err
	}
	done := progress(c, "running")
	res, err := client(c).Run(c.Context, id, spec)
	done()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.App.Writer, res)
	}
	return writeRun(c, res)
}

func runSpec(c *cli.Context) (chat.RunSpec, error) {
	env, err := pairs("env", c.StringSlice("env"))
	if err != nil {
		return chat.RunSpec{}, err
	}
	spec := chat.RunSpec{Command: c.String("c"), Argv: c.Args().Tail(), Cwd: c.String("cwd"), Env: env,
		Stdin: c.String("stdin"), Timeout: chat.Duration(c.Duration("timeout"))}
	if spec.Stdin == "-" {
		if spec.Stdin, err = readText(c.App.Reader, chat.MaxStdin); err != nil {
			return chat.RunSpec{}, err
		}
	}
	return spec, spec.Validate()
}

// writeRun passes the streams and the exit code on.
func writeRun(c *cli.Context, res chat.RunResult) error {
	err := errors.Join(writeChatText(c.App.Writer, res.Stdout), writeChatText(c.App.ErrWriter, res.Stderr))
	if err != nil {
		return err
	}
	if res.Truncated {
		fmt.Fprintf(c.App.ErrWriter, "chatd: the output was longer than %s; its end was dropped\n", size(chat.MaxOutput))
	}
	code := res.Exit
	switch {
	case res.TimedOut:
		fmt.Fprintln(c.App.ErrWriter, "chatd: the run was ended by its timeout")
		code = timeoutExit
	case res.Signal != "":
		why := ""
		if res.OOMKilled {
			why = ": the chat was out of memory"
		}
		fmt.Fprintf(c.App.ErrWriter, "chatd: the run was ended by %s%s\n", escape(res.Signal), why)
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
		return "", fmt.Errorf("cannot read standard input: more than %d bytes: %w", limit, chat.ErrInvalid)
	}
	return string(b), nil
}
