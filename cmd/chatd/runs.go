package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

// runCommands are about what runs in a chat, now and by the clock.
func runCommands() []*cli.Command {
	return []*cli.Command{runCommand(), runsCommand(), command("ps", ofChat(listProcesses)), scheduleCommand()}
}

func runsCommand() *cli.Command {
	return command("runs", showRuns,
		boolFlag("f", "follow the output until the run ends"),
		textFlag("cursor", "with -f: begin at this `PLACE`, as the API names it"),
		boolFlag("end", "end the run"),
		textFlag("signal",
			"send `SIGNAL` to every process of the run: INT, TERM, HUP, QUIT, USR1, USR2 or KILL"),
		boolFlag("stdin", "send standard input to the run, and close its own then"),
	)
}

func showRuns(c *cli.Context) error {
	if c.NArg() < 1 || c.NArg() > 2 {
		return chat.Invalid("cannot show runs: want CHAT and perhaps RUN, got %d arguments", c.NArg())
	}
	id, err := chatArg(c.Args().First())
	if err != nil {
		return err
	}
	run, asked := c.Args().Get(1), 0
	for _, flag := range []string{"f", "end", "signal", "stdin"} {
		if c.IsSet(flag) {
			asked++
		}
	}
	switch {
	case asked > 1 || asked == 1 && run == "":
		return chat.Invalid("cannot use the arguments: want RUN and at most one of -f, --end, --signal and --stdin")
	case run == "":
		return listRuns(c, id)
	case c.Bool("f"):
		return followRun(c, id, run)
	case c.Bool("end"):
		done := progress(c, "ending")
		defer done()
		return daemon(c).EndRun(c.Context, id, run)
	case c.IsSet("signal"):
		return daemon(c).SignalRun(c.Context, id, run, chat.RunSignal{Signal: c.String("signal")})
	case c.Bool("stdin"):
		return daemon(c).WriteStdin(c.Context, id, run, io.NopCloser(c.App.Reader), true)
	}
	return showRun(c, id, run)
}

func listRuns(c *cli.Context, id chat.ID) error {
	list, err := daemon(c).Runs(c.Context, id)
	return answer(c, list, err, printer.Runs(list.Runs))
}

func showRun(c *cli.Context, id chat.ID, run string) error {
	r, err := daemon(c).ShowRun(c.Context, id, run)
	return answerBy(c, r, err, func(w io.Writer) error { return printer.Run(w, c.App.ErrWriter, r) })
}

// followRun prints what a run prints; to be interrupted ends only that.
func followRun(c *cli.Context, id chat.ID, run string) error {
	out := streams{to: map[string]io.Writer{chat.Stdout: c.App.Writer, chat.Stderr: c.App.ErrWriter},
		cancel: func() {}}
	res, err := daemon(c).FollowRun(c.Context, id, run, c.String("cursor"), func(f chat.Frame) {
		if f.Missing > 0 {
			fmt.Fprintf(c.App.ErrWriter, "chatd: %d bytes of %s are left out here, for they are not kept\n",
				f.Missing, printer.Escape(f.Stream))
		}
		out.write(f.Stream, f.Bytes())
	})
	if out.failed != nil {
		return out.failed
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printer.JSON(c.App.Writer, res)
	}
	res.Truncated = false // everything that is kept was printed
	return writeEnd(c, res)
}

func listProcesses(c *cli.Context, id chat.ID) error {
	list, err := daemon(c).Processes(c.Context, id)
	if list.LeftOut > 0 {
		fmt.Fprintf(c.App.ErrWriter, "chatd: %d processes more are not listed\n", list.LeftOut)
	}
	return answer(c, list, err, printer.Processes(list.Processes))
}

func scheduleCommand() *cli.Command {
	return command("schedule", scheduleAction, slices.Concat([]cli.Flag{
		textFlag("cron", "run at `TIMES`: minute hour day-of-month month day-of-week, or @daily and so on"),
		timeFlag("every", "run once in this `TIME`, at least 1m", "none"),
		textFlag("at", "run once at this `TIME`: RFC 3339, or without an offset in --time-zone"),
		textFlag("time-zone", "the `ZONE` of --cron and --at, as in Europe/Berlin (default: UTC)"),
	}, commandFlags(), []cli.Flag{
		timeFlag("timeout", "end each run after this `TIME`, at most the profile's timeout_max", "5m"),
		timeFlag("grace",
			"the `TIME` a run may take to end after SIGTERM, before SIGKILL; at most 30s", "2s"),
	})...)
}

func scheduleAction(c *cli.Context) error {
	return doAction(c, "add, ls, show or rm", map[string]action{
		"add": {"cron every at time-zone c cwd env timeout grace", 0, math.MaxInt, addSchedule},
		"ls":  {"", 0, 0, listSchedules}, "show": {"", 1, 1, showSchedule}, "rm": {"", 1, 1, removeSchedule},
	})
}

func addSchedule(c *cli.Context, id chat.ID, argv []string) error {
	env, err := pairs("env", c.StringSlice("env"))
	if err != nil {
		return err
	}
	s, err := daemon(c).AddSchedule(c.Context, id, chat.ScheduleSpec{
		Cron: c.String("cron"), Every: chat.Duration(c.Duration("every")), At: c.String("at"),
		TimeZone: c.String("time-zone"),
		Command:  c.String("c"), Argv: argv, Cwd: c.String("cwd"), Env: env,
		Timeout: chat.Duration(c.Duration("timeout")), Grace: chat.Duration(c.Duration("grace")),
	})
	return answer(c, s, err, printer.NewSchedule(s))
}

func listSchedules(c *cli.Context, id chat.ID, _ []string) error {
	all, err := daemon(c).Schedules(c.Context, id)
	return answer(c, all, err, printer.Schedules(all.Schedules))
}

func showSchedule(c *cli.Context, id chat.ID, args []string) error {
	s, err := daemon(c).Schedule(c.Context, id, args[0])
	return answerBy(c, s, err, func(w io.Writer) error { return printer.Schedule(w, s) })
}

func removeSchedule(c *cli.Context, id chat.ID, args []string) error {
	return daemon(c).RemoveSchedule(c.Context, id, args[0])
}
