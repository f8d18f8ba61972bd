package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/backup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/config"
	"github.com/chatd/chatd/printer"
	"github.com/chatd/chatd/state"
)

func restoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Usage:     "put the state of a backup in place",
		ArgsUsage: "FILE",
		Description: "Needs root, and that no daemon runs. FILE is a backup; - is standard input. All of it\n" +
			"is verified before anything changes: hashes, sizes, version, every record, and the chain\n" +
			"of the audit log. A state that is there is an error, and with --replace moved aside, into\n" +
			"a directory beside the new one. It touches no home, and leaves the config alone:\n" +
			"tar -xOf FILE config/chatd.yaml prints that of the backup.\n\n" +
			"No uid that was given since the backup is given again. Which were it reads from the state\n" +
			"that is there, from homes and accounts. Without a whole database it leaves out half of\n" +
			"the range, or what is at or below --last-uid. A chat that was reaped since the backup is\n" +
			"there again; of one that was made since, the home stays, without a chat.\n\n" +
			"   chatd restore --check chatd.tar\n" +
			"   chatd restore chatd.tar\n" +
			"   systemctl stop chatd && chatd restore --replace chatd.tar && systemctl start chatd",
		Flags: []cli.Flag{
			configFlag(),
			stateFlag(),
			&cli.BoolFlag{Name: "check", Usage: "only verify the backup"},
			&cli.BoolFlag{Name: "replace", Usage: "move a state that is there aside"},
			&cli.Uint64Flag{
				Name:  "last-uid",
				Usage: "the highest `UID` that was ever given, if you know it",
			},
		},
		Action: restore,
	}
}

func restore(c *cli.Context) (err error) {
	if c.NArg() != 1 {
		return fmt.Errorf("cannot restore: want one FILE, got %d arguments: %w", c.NArg(),
			chat.ErrInvalid)
	}
	in, closeIn, err := backupInput(c)
	if err != nil {
		return stateError(err)
	}
	defer closeIn()
	if c.Bool("check") {
		return checkBackup(c, in)
	}
	opt, err := restoreOptions(c)
	if err != nil {
		return err
	}
	done := progress(c, "restoring")
	r, err := backup.Restore(c.Context, in, opt)
	done()
	if err != nil {
		return stateError(err)
	}
	return answer(c, r, func(w io.Writer) error { return describeRestored(w, opt, r) })
}

// backupInput is the file, or standard input.
func backupInput(c *cli.Context) (io.Reader, func(), error) {
	name := c.Args().First()
	if name == "-" {
		return c.App.Reader, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the backup: %w", err)
	}
	return f, func() { _ = f.Close() }, nil // only read
}

func checkBackup(c *cli.Context, in io.Reader) error {
	done := progress(c, "verifying")
	m, err := backup.Read(c.Context, in)
	done()
	if err != nil {
		return stateError(err)
	}
	return answer(c, m, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "holds: made %s by chatd %s\n", m.At.Format("2006-01-02 15:04:05 MST"), printer.Cell(m.Chatd)); err != nil {
			return err
		}
		return describeBackup(w, c.Args().First(), m)
	})
}

func restoreOptions(c *cli.Context) (opt backup.RestoreOptions, err error) {
	cfg, err := config.Load(config.Flags{File: c.String("config"), State: c.String("state")})
	if err != nil {
		return opt, err
	}
	last := c.Uint64("last-uid")
	if last > uint64(cfg.UIDs.High) {
		return opt, fmt.Errorf("cannot use --last-uid %d: want a uid of %d-%d: %w", last,
			cfg.UIDs.Low, cfg.UIDs.High, chat.ErrInvalid)
	}
	traces, err := usedUIDs(cfg)
	return backup.RestoreOptions{
		State: cfg.State, UIDs: state.Range{Low: cfg.UIDs.Low, High: cfg.UIDs.High}, Replace: c.Bool("replace"),
		LastUID: uint32(last), Traces: traces, By: chat.Caller{Name: "root", UID: uint32(os.Geteuid()), Role: chat.RoleOperator},
	}, err
}

func describeRestored(w io.Writer, opt backup.RestoreOptions, r backup.Restored) error {
	m := r.Manifest
	text := fmt.Sprintf("%s: %d chats, audit log to line %d, as of %s\n", opt.State, m.Chats,
		m.AuditSeq, m.At.Format("2006-01-02 15:04:05 MST"))
	if r.Aside != "" {
		text += fmt.Sprintf("the former state is in %s; it holds the audit log since the backup\n",
			r.Aside)
	}
	text += fmt.Sprintf("uids below %d are not given again", r.FirstUID)
	if !r.Exact {
		text += ": no database of this host says which were given since the backup, so half of the range is left out"
	}
	text += "\n"
	names := make([]string, 0, len(m.Config))
	for name, path := range m.Config {
		names = append(
			names,
			fmt.Sprintf("the backup's %s is %s in it; compare it with this host's\n",
				chat.QuotePath(path), name))
	}
	slices.Sort(names)
	for _, line := range names {
		text += line
	}
	_, err := io.WriteString(w, printer.Escape(text))
	return err
}
