package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func showCommand() *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one chat, its limits and its walls",
		ArgsUsage: "CHAT",
		Description: "--plan shows what its session is made of, or would be if it is asleep: mounts, Landlock\n" +
			"rules, names of the environment, network, namespaces, system calls. It is for operators.\n\n" +
			"   chatd show 0123456789abcdef\n   chatd show chat-0123456789abcdef --json\n   chatd show --plan 0123456789abcdef",
		Flags:  []cli.Flag{&cli.BoolFlag{Name: "plan", Usage: "show what its session is made of"}},
		Action: show,
	}
}

func show(c *cli.Context) error {
	id, err := oneChat(c)
	if err != nil {
		return err
	}
	if c.Bool("plan") {
		return showPlan(c, id)
	}
	ch, err := client(c).Get(c.Context, id)
	if err != nil {
		return err
	}
	return answer(c, ch, func(w io.Writer) error { return writeChat(w, ch, time.Now()) })
}

func limitWords(l chat.Limits) string {
	words := fmt.Sprintf("memory %s, swap %s, pids %d, cpu %s each %s",
		size(l.MemoryMax), size(l.SwapMax), l.PidsMax, l.CPUQuota, l.CPUPeriod)
	if l.FSize > 0 {
		words += ", file " + size(l.FSize)
	}
	return words
}

func writeChat(w io.Writer, ch chat.Chat, now time.Time) error {
	rows := [][]string{
		{"id", string(ch.ID)},
		{"user", ch.User},
		{"uid", fmt.Sprint(ch.UID)},
		{"external id", ch.ExternalID},
		{"owner", ch.Owner},
		{"agent", ch.Agent},
		{"profile", ch.Profile},
		{"file rules", dash(ch.FileRules)},
		{"phase", string(ch.Phase)},
		{"awake", awakeWord(ch)},
		{"home", ch.Home},
		{"created", age(now.Sub(ch.CreatedAt)) + " ago"},
		{"used", age(now.Sub(ch.UsedAt)) + " ago"},
		{"limits", limitWords(ch.Limits)},
	}
	if u := ch.Usage; u != nil {
		rows = append(rows, []string{"usage", fmt.Sprintf("memory %s (peak %s), pids %d, cpu %s; killed for memory %d, forks refused %d, throttled %d",
			size(u.MemoryBytes), size(u.MemoryPeak), u.Pids, u.CPU, u.OOMKills, u.PidsRefused, u.Throttled)})
	}
	for _, k := range slices.Sorted(maps.Keys(ch.Labels)) {
		rows = append(rows, []string{"label", k + "=" + ch.Labels[k]})
	}
	if err := table(w, rows); err != nil || len(ch.Layers) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return writeLayers(w, ch.Layers)
}
