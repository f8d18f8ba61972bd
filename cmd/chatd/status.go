package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/printer"
)

func statusAction(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	st, err := daemon(c).Status(c.Context)
	if err != nil {
		return err
	}
	if err := answer(c, st, nil, func(w io.Writer) error {
		return printer.Status(w, st, time.Now())
	}); err != nil {
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
