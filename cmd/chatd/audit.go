package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/state"
)

func auditCommand() *cli.Command {
	return command("audit", audit,
		configFlag(),
		stateFlag(),
		textFlag("chat", "only what is about this `CHAT`"),
		textFlag("since", "only what is younger than this `TIME`: 90m, 7d, or 2026-11-22T09:00:00Z"),
		&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what is written"},
		boolFlag("verify", "check the whole log instead"),
	)
}

func audit(c *cli.Context) error {
	if c.NArg() > 1 || c.NArg() == 1 && c.Args().First() != "show" {
		return chat.Invalid("cannot audit: unexpected argument %s: want only show, or nothing",
			chat.Quote(c.Args().Get(c.NArg()-1)))
	}
	dir, err := auditDir(c)
	if err != nil {
		return err
	}
	if c.Bool("verify") {
		return verifyAudit(c, dir)
	}
	wanted, err := auditFilter(c)
	if err != nil {
		return err
	}
	err = state.ReadAudit(c.Context, dir, c.Bool("follow"), func(l state.AuditLine) error {
		if !wanted(l) {
			return nil
		}
		return writeAuditLine(c, l)
	})
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: want root: %w", err, chat.ErrDenied)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: want the state directory of a chatd: %w", err, chat.ErrNotFound)
	case errors.Is(err, chat.ErrInvalid):
		err = fmt.Errorf("%w: chatd audit --verify names the line", err)
	}
	return err
}

// auditDir is where the log lies.
func auditDir(c *cli.Context) (string, error) {
	if c.IsSet("state") {
		return c.String("state"), nil
	}
	cfg, err := loadConfig(c)
	return cfg.State, err
}

// auditFilter is which lines are asked for.
func auditFilter(c *cli.Context) (func(state.AuditLine) bool, error) {
	var id chat.ID
	var since time.Time
	var err error
	if c.IsSet("chat") {
		if id, err = chatArg(c.String("chat")); err != nil {
			return nil, err
		}
	}
	if c.IsSet("since") {
		if since, err = parseSince(c.String("since"), time.Now()); err != nil {
			return nil, err
		}
	}
	return func(l state.AuditLine) bool { return (id == "" || l.Chat == id) && !l.Time.Before(since) }, nil
}

// parseSince reads a time, or how long ago it was.
func parseSince(s string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	d, err := chat.ParseAge(s)
	if err != nil {
		return now, chat.Invalid("cannot use --since %s: want a duration, as in 90m or 7d, or a time as in 2026-11-22T09:00:00Z",
			chat.Quote(s))
	}
	return now.Add(-d), nil
}

// writeAuditLine writes one line: with --json as it lies in the log.
func writeAuditLine(c *cli.Context, l state.AuditLine) error {
	if c.Bool("json") {
		_, err := c.App.Writer.Write(append(l.Text, '\n'))
		return err
	}
	who, about := cmp.Or(l.Caller.Name, fmt.Sprintf("uid %d", l.Caller.UID)), cmp.Or(string(l.Chat), "-")
	_, err := fmt.Fprintf(c.App.Writer, "%s %d %s %s %s by %s%s\n", l.Time.UTC().Format(time.RFC3339),
		l.Seq, printer.Cell(about), printer.Cell(l.Action), printer.Cell(l.Outcome), printer.Cell(who), auditDetail(l))
	return err
}

// auditDetail is the command line and the rest of what a line says.
func auditDetail(l state.AuditLine) string {
	var b strings.Builder
	if l.Argv != nil {
		quoted := make([]string, len(l.Argv))
		for i, arg := range l.Argv {
			quoted[i] = chat.Quote(arg)
		}
		fmt.Fprintf(&b, " argv=[%s]", strings.Join(quoted, " "))
	}
	if l.ArgvCut > 0 {
		fmt.Fprintf(&b, " (%d bytes of it left out)", l.ArgvCut)
	}
	for _, key := range slices.Sorted(maps.Keys(l.Detail)) {
		fmt.Fprintf(&b, " %s=%s", printer.Cell(key), printer.Cell(l.Detail[key]))
	}
	return b.String()
}

// auditVerdict is what --verify finds.
type auditVerdict struct {
	Lines    int    `json:"lines"`
	Compared bool   `json:"compared"`
	Holds    bool   `json:"holds"`
	Error    string `json:"error,omitempty"`
}

func verifyAudit(c *cli.Context, dir string) error {
	lines, compared, broken := state.CheckAudit(dir)
	v := auditVerdict{Lines: lines, Compared: compared, Holds: broken == nil}
	if broken != nil {
		v.Error = broken.Error()
	}
	err := answerBy(c, v, nil, func(w io.Writer) error {
		if broken != nil {
			_, err := fmt.Fprintf(c.App.ErrWriter, "chatd: %s\n", printer.Escape(broken.Error()))
			return err
		}
		end := "its end is as the database has it"
		if !compared {
			end = "a daemon holds the database, so lines cut off the end cannot be seen"
		}
		_, err := fmt.Fprintf(w, "%d lines hold; %s\n", lines, end)
		return err
	})
	if err == nil && broken != nil {
		err = &exitError{1}
	}
	return err
}
