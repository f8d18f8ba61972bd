package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

func serveCommand() *cli.Command {
	flags := []cli.Flag{configFlag()}
	for _, s := range settings {
		env := "CHATD_" + strings.ToUpper(s.name)
		flags = append(flags, &cli.StringFlag{Name: s.name, EnvVars: []string{env}, Usage: s.usage})
	}
	return &cli.Command{
		Name:  "serve",
		Usage: "serve the API; this is the service, and runs as root",
		Description: "Reads its config file over the defaults it was built with, the CHATD_ variables over\n" +
			"that, and the flags over those. The socket is --socket, by default chatd.sock in\n" +
			"--run. A layer that this host lacks stops it, unless --allow-missing names it; what is\n" +
			"missing then shows in every answer. chatd doctor says what to install.\n\n" +
			"   chatd serve\n" +
			"   chatd serve --check                       (prints the config it would run with)\n" +
			"   chatd serve --allow-missing=cpu,memory --state /tmp/chatd",
		Flags: append(flags,
			&cli.StringSliceFlag{Name: "allow-missing", EnvVars: []string{"CHATD_ALLOW_MISSING"}, Usage: "start without this `LAYER`; may be given again, or with commas"},
			&cli.BoolFlag{Name: "check", Usage: "check the config, print all of it, and end"},
		),
		Action: serveAction,
	}
}

func serveAction(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	cfg, err := loadConfig(c)
	cfg.again = func() (Config, error) { return loadConfig(c) }
	if err != nil {
		return err
	}
	if err := checkViews(cfg); err != nil {
		return err
	}
	if !c.Bool("check") {
		return serve(c.Context, cfg)
	}
	return answer(c, cfg, func(w io.Writer) error {
		b, err := yamlOf(cfg)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(w, string(b))
		return err
	})
}
