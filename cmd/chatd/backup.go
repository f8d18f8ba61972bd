package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/backup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/config"
	"github.com/chatd/chatd/printer"
)

func backupCommand() *cli.Command {
	return &cli.Command{
		Name:  "backup",
		Usage: "write records, key, audit log and config into one file",
		Description: "Reads the state directory, which needs root. A daemon may run: its changes\n" +
			"wait for some milliseconds, and the backup is the state as it was at one moment. All of it\n" +
			"is verified before it is written. It holds the install key in clear: keep it as root's, or encrypt\n" +
			"it. Homes, temporary directories and terminal logs are not in it.\n\n" +
			"   chatd backup --output /root/chatd.tar\n" +
			"   chatd backup --output - | age -r RECIPIENT > chatd.tar.age\n" +
			"   chatd restore --check /root/chatd.tar",
		Flags: []cli.Flag{
			configFlag(),
			stateFlag(),
			&cli.StringFlag{
				Name:      "output",
				Aliases:   []string{"o"},
				TakesFile: true,
				Usage:     "`FILE` to make, with mode 0600; - is standard output",
			},
		},
		Action: backUp,
	}
}

func stateFlag() cli.Flag {
	return &cli.StringFlag{
		Name:      "state",
		EnvVars:   []string{"CHATD_STATE"},
		TakesFile: true,
		Usage:     "`DIRECTORY` of records, key and audit log (default: the config's)",
	}
}

// backedUp is the answer of backup --json.
type backedUp struct {
	File string `json:"file"`
	backup.Manifest
}

func backUp(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	name := c.String("output")
	switch {
	case name == "":
		return fmt.Errorf("cannot back up: want --output FILE, or --output - for standard output: %w",
			chat.ErrInvalid)
	case name == "-" && c.Bool("json"):
		return fmt.Errorf("cannot back up: --json beside --output -: want a file: %w",
			chat.ErrInvalid)
	case name == "-" && printer.IsTerminal(c.App.Writer):
		return fmt.Errorf("cannot back up to a terminal: want --output FILE: %w", chat.ErrInvalid)
	}
	opt, err := backupOptions(c)
	if err != nil {
		return err
	}
	done := progress(c, "backing up")
	var m backup.Manifest
	if name == "-" {
		m, err = backup.Make(c.Context, c.App.Writer, opt)
	} else {
		m, err = backUpTo(c, name, opt)
	}
	done()
	if err != nil {
		return stateError(err)
	}
	if name == "-" {
		return describeBackup(c.App.ErrWriter, name, m)
	}
	return answer(c, backedUp{name, m},
		func(w io.Writer) error { return describeBackup(w, name, m) })
}

func describeBackup(w io.Writer, name string, m backup.Manifest) error {
	if name == "-" {
		name = "standard output"
	}
	_, err := fmt.Fprintf(w, "%s: %d chats, %d files, audit log to line %d, state version %d\n",
		printer.Cell(name), m.Chats, len(m.Files), m.AuditSeq, m.State)
	return err
}

// backupOptions are the state directory and the files of the config: the main file, and the files
// of rules that its profiles name.
func backupOptions(c *cli.Context) (backup.Options, error) {
	opt := backup.Options{Chatd: version}
	cfg, err := config.Load(config.Flags{File: c.String("config"), State: c.String("state")})
	if err != nil {
		return opt, err
	}
	opt.State = cfg.State
	opt.Config, err = configFiles(c.String("config"), cfg)
	return opt, err
}

// stateError adds what a caller without the right to read the state needs to know.
func stateError(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: want root: %w", err, chat.ErrDenied)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %w", err, chat.ErrExists)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", err, chat.ErrNotFound)
	}
	return err
}

// configFiles are the files that a config was read from, the main one first.
func configFiles(main string, cfg config.Config) (files []string, err error) {
	if main == "" {
		main = config.File
		if _, err := os.Stat(main); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot back up the config: %w", err)
		}
	}
	return append([]string{main}, cfg.RuleFiles()...), nil
}

// backUpTo makes a file that is there whole, and durably, or not at all.
func backUpTo(c *cli.Context, name string, opt backup.Options) (m backup.Manifest, err error) {
	if _, err := os.Lstat(name); err == nil {
		return m, fmt.Errorf("cannot back up to %s: it is there: %w", name, chat.ErrExists)
	}
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".chatd-backup-")
	if err != nil {
		return m, fmt.Errorf("cannot back up: %w", err)
	}
	m, err = backup.Make(c.Context, f, opt)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), name) // unlike a rename, it replaces nothing
	}
	err = errors.Join(err, os.Remove(f.Name()))
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return m, fmt.Errorf("cannot back up to %s: %w", name, err)
	}
	return m, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
