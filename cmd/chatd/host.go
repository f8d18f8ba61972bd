package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front/printer"
	"github.com/chatd/chatd/internal/config"
)

// hostCommands are about the host, and the daemon as a whole.
func hostCommands() []*cli.Command {
	return []*cli.Command{
		command("doctor", alone(doctor), configFlag()), command("status", alone(statusAction)),
		auditCommand(), command("backup", alone(backUp)), verifyCommand(),
		command("wall", alone(wall), configFlag()), frontCommand(), compileCommand(),
	}
}

func doctor(c *cli.Context) error {
	h, err := daemon(c).Host(c.Context)
	if noDaemon(err) {
		h, err = doctorAlone(c)
	}
	if err := answer(c, h, err, printer.Host(h)); err != nil {
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
	return fromRoot[chat.Host](c.Context, "doctor", flags)
}

// noDaemon tells a socket without a daemon from a daemon that said no.
func noDaemon(err error) bool {
	var p *client.Problem
	return err != nil && !errors.As(err, &p) &&
		(errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

func statusAction(c *cli.Context) error {
	st, err := daemon(c).Status(c.Context)
	if err := answer(c, st, err, printer.Status(st, time.Now())); err != nil {
		return err
	}
	return statusError(st)
}

// statusError is nil where chats may be created and woken.
func statusError(st chat.Status) error {
	if st.Ready {
		return nil
	}
	for _, l := range st.Layers {
		if l.State == chat.LayerOff {
			return fmt.Errorf("chatd begins nothing: layer %s does not stand; chatd doctor says more: %w",
				l.Name, chat.ErrUnsupported)
		}
	}
	return fmt.Errorf("chatd begins nothing now: not every wall was tried, or a finding says why; chatd doctor says more: %w", chat.ErrBusy)
}

func backUp(c *cli.Context) error {
	done := progress(c, "backing up")
	b, err := daemon(c).Backup(c.Context)
	done()
	return answer(c, b, err, fmt.Sprintf("%s: %d chats, audit log to line %d\n", printer.Escape(b.Path),
		b.Chats, b.AuditSeq))
}

// wallAnswer is the answer of wall --json.
type wallAnswer struct {
	UIDs config.UIDRange `json:"uids"`
}

func wall(c *cli.Context) error {
	flags, err := configFlags(c)
	if err != nil {
		return err
	}
	uids, err := fromRoot[config.UIDRange](c.Context, "wall", flags)
	return answer(c, wallAnswer{uids}, err, fmt.Sprintf("uids %d-%d are walled\n", uids.Low, uids.High))
}
