package main

import (
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show the daemon on one screen: what is awake, what does not hold, what is nearly spent, what failed",
		Description: "Asks the daemon, which tries nothing for it: chatd doctor tries the walls. Exits 69 when\n" +
			"a wall that is required does not stand, and 75 while chatd starts or cannot tell.\n\n" +
			"   chatd status\n" +
			"   chatd status --json | jq .findings",
		Action: statusAction,
	}
}

func statusAction(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	defer client(c).Close()
	st, err := client(c).Status(c.Context)
	if err != nil {
		return err
	}
	if err := answer(c, st, func(w io.Writer) error { return writeStatus(w, st, time.Now()) }); err != nil {
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
			return fmt.Errorf("chatd begins nothing: layer %s does not stand; chatd doctor says more: %w", l.Name, chat.ErrUnsupported)
		}
	}
	return fmt.Errorf("chatd begins nothing yet: not every wall was tried; chatd doctor says more: %w", chat.ErrBusy)
}

func writeStatus(w io.Writer, st chat.Status, now time.Time) error {
	word := "up"
	if !st.Ready {
		word = "NOT READY"
	}
	fmt.Fprintf(w, "chatd %s, %s since %s (%s)\n", escape(st.Version), word, st.Since.Local().Format(time.DateTime), age(now.Sub(st.Since)))
	fmt.Fprintf(w, "chats: %d, %d awake, %d at work, %d asleep\n", st.Chats, st.Awake, st.AtWork, st.Asleep)
	for _, l := range st.Layers {
		fmt.Fprintf(w, "layer %s is %s: %s\n", escape(string(l.Name)), escape(string(l.State)), cell(dash(cut(l.Probe, triedWidth))))
	}
	for _, b := range st.Bounds {
		fmt.Fprintf(w, "%s: %d of %d\n", escape(b.Name), b.Used, b.Max)
	}
	for _, u := range st.Shares {
		fmt.Fprintln(w, cell(quota.Warning(u)))
	}
	if err := table(w, diskRows(st.Disks)); err != nil {
		return err
	}
	for _, f := range st.Findings {
		fmt.Fprintf(w, "finding: %s\n", cell(f))
	}
	for _, f := range st.Failures {
		fmt.Fprintf(w, "failed %s ago: %s of chat %s by %s: %s\n", age(now.Sub(f.At)), cell(f.Action), cell(dash(string(f.Chat))), cell(dash(f.By)), cell(f.Error))
	}
	return nil
}

func diskRows(disks []chat.Disk) [][]string {
	rows := [][]string{{"DISK", "OF", "FREE", "SIZE", "FREE INODES", ""}}
	for _, d := range disks {
		inodes, note := "-", ""
		if d.Inodes > 0 {
			inodes = fmt.Sprintf("%d%%", 100*d.FreeInodes/d.Inodes)
		}
		if d.ReadOnly {
			note = "read-only"
		}
		rows = append(rows, []string{cell(d.Path), d.For, size(d.Free), size(d.Size), inodes, note})
	}
	return rows
}
