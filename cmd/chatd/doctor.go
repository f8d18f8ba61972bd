package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config/configfile"
)

// probeHost tries every layer without a daemon; serve sets it where it can.
var probeHost = func(context.Context, configfile.Flags) (chat.Host, error) {
	return chat.Host{}, fmt.Errorf("cannot probe the layers: chatd's walls are made by the Linux kernel: %w",
		chat.ErrUnsupported)
}

// hostCommands are about the host, and the daemon as a whole.
func hostCommands() []*cli.Command {
	return []*cli.Command{
		command("doctor", doctor, configFlag()), command("status", statusAction), auditCommand(),
		command("backup", backUp), verifyCommand(), command("wall", wall, configFlag()), frontCommand(),
		compileCommand(),
	}
}

func doctor(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	h, err := daemon(c).Host(c.Context)
	if noDaemon(err) {
		h, err = doctorAlone(c)
	}
	if err != nil {
		return err
	}
	if err := answer(c, h, nil, func(w io.Writer) error { return printer.Host(w, h) }); err != nil {
		return err
	}
	if len(h.Missing) > 0 {
		return fmt.Errorf("cannot serve here: required layers are missing: %s: %w",
			printer.LayerNames(h.Missing), chat.ErrUnsupported)
	}
	if len(h.Broken) > 0 {
		return fmt.Errorf("cannot serve here as configured: see above: %w", chat.ErrUnsupported)
	}
	if unknown := unknownLayers(h); len(unknown) > 0 {
		return fmt.Errorf("cannot tell whether required layers hold: %s: %w", printer.LayerNames(unknown),
			chat.ErrBusy)
	}
	return nil
}

// unknownLayers are the required layers that could not be tried.
func unknownLayers(h chat.Host) (names []chat.LayerName) {
	for _, l := range h.Layers {
		if l.State == chat.LayerUnknown && !slices.Contains(h.Allowed, l.Name) {
			names = append(names, l.Name)
		}
	}
	return names
}

func doctorAlone(c *cli.Context) (chat.Host, error) {
	fmt.Fprintf(c.App.ErrWriter, "chatd: no daemon answers at %s: trying the walls without one\n",
		c.String("socket"))
	flags, err := configFlags(c)
	if err != nil {
		return chat.Host{}, err
	}
	defer progress(c, "trying the walls")()
	return probeHost(c.Context, flags)
}

// noDaemon tells a socket without a daemon from a daemon that said no.
func noDaemon(err error) bool {
	var p *client.Problem
	return err != nil && !errors.As(err, &p) &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}
