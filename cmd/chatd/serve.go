package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/config/configfile"
)

func serveCommand() *cli.Command {
	flags := []cli.Flag{configFlag()}
	for _, s := range settings {
		flags = append(flags, &cli.StringFlag{Name: s.name, Usage: s.usage})
	}
	return command("serve", alone(serveAction), append(flags,
		listFlag("allow-missing", "start without this `LAYER`; may be given again, or with commas"),
		boolFlag("check", "check the config, print all of it, and end"),
	)...)
}

func serveAction(c *cli.Context) error {
	flags, err := configFlags(c)
	if err != nil {
		return err
	}
	if !c.Bool("check") {
		return becomeRoot(flags) // which has the config read by a process without its privilege
	}
	cfg, err := loadConfig(c)
	if err != nil {
		return err
	}
	_, err = askRoot(c.Context, "check", flags) // it looks at the host for what profiles open of it
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fmt.Fprintf(c.App.ErrWriter, "chatd: warning: %s\n",
			unchecked("what profiles open of this host"))
	}
	if err != nil {
		return err
	}
	text, err := configfile.Explained(cfg)
	return answer(c, cfg, err, text)
}

func configFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", EnvVars: []string{"CHATD_CONFIG"}, TakesFile: true,
		Usage: "the `FILE` to read (default: " + config.File + ", if it is there)"}
}

// settings are the keys that are flags of serve.
var settings = []struct{ name, usage string }{
	{"state", "`DIRECTORY` of records, key and audit log"},
	{"run", "`DIRECTORY` of sockets"},
	{"homes", "`DIRECTORY` of the chats' homes"},
	{"backend", "auto, systemd or cgroupfs"},
}

// configFlags are what the flags of c say of the config.
func configFlags(c *cli.Context) (f configfile.Flags, err error) {
	f.File = c.String("config")
	set := func(name, value string) {
		path := []string{strings.ReplaceAll(name, "-", "_")}
		f.Set = append(f.Set, configfile.Setting{Path: path, Value: value, From: "--" + name})
	}
	for _, name := range []string{"state", "run", "homes", "backend", "socket"} {
		value := c.String(name)
		_, variable := os.LookupEnv("CHATD_" + strings.ToUpper(name))
		switch {
		case !c.IsSet(name) || variable && value == os.Getenv("CHATD_"+strings.ToUpper(name)):
		case value == "":
			return f, chat.Invalid("cannot use --%s: it is empty", name)
		default:
			set(name, value)
		}
	}
	for _, layer := range c.StringSlice("allow-missing") {
		set("allow-missing", layer)
	}
	return f, nil
}

// loadConfig is the config with what the flags and variables of c say of it.
func loadConfig(c *cli.Context) (config.Config, error) {
	flags, err := configFlags(c)
	if err != nil {
		return config.Config{}, err
	}
	variables, err := configfile.Variables(flags.File, os.Environ())
	if err != nil {
		return config.Config{}, err
	}
	flags.Set = append(variables, flags.Set...)
	return configfile.Load(flags)
}

// unchecked says that only the host's part of a check is left out.
func unchecked(what string) string {
	return what + " is not checked: chatd-root is not installed beside chatd"
}

// rootVerbs are what chatd-root does as root, in words.
var rootVerbs = map[string]string{
	"serve": "serve", "doctor": "probe the layers", "wall": "raise the wall",
}

// findProgram is where chatd-root lies; tests say another place.
var findProgram = config.FindProgram

// askRoot runs chatd-root for one act, and returns what it printed. Where that is not installed, the
// error is fs.ErrNotExist. Tests answer themselves.
var askRoot = runRoot

// fromRoot is the value that chatd-root prints for one act.
func fromRoot[T any](ctx context.Context, verb string, f configfile.Flags, more ...string) (v T, err error) {
	out, err := askRoot(ctx, verb, f, more...)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("cannot read what chatd-root found: %w", err)
	}
	return v, nil
}
