package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/chatd/chatd/chat"
)

func showPlan(c *cli.Context, id chat.ID) error {
	p, err := client(c).Plan(c.Context, id)
	if err != nil {
		return err
	}
	return answer(c, p, func(w io.Writer) error { return writePlan(w, p) })
}

func writePlan(w io.Writer, p chat.Plan) error {
	started := "would start with this"
	if p.StartedAt != nil {
		started = p.StartedAt.Format("2006-01-02 15:04:05 MST")
	}
	rows := [][]string{
		{"id", string(p.ID)}, {"profile", p.Profile}, {"user", fmt.Sprintf("%s, uid %d", p.User, p.UID)}, {"session", started},
		{"network", string(p.Network)}, {"namespaces", strings.Join(p.Namespaces, " ")}, {"environment", strings.Join(p.Env, " ")},
		{"seccomp", fmt.Sprintf("%d calls refused, %d judged by their arguments (--json lists them)", len(p.Seccomp), len(p.SeccompConditional))},
		{"landlock", fmt.Sprintf("%d rules, ABI %d or later", len(p.Landlock), p.LandlockABI)},
	}
	if len(p.Without) > 0 {
		rows = append(rows, []string{"without", joinLayers(p.Without)})
	}
	for _, n := range p.Notes {
		rows = append(rows, []string{"note", n})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	fmt.Fprintln(w)
	mounts := [][]string{{"TARGET", "TYPE", "MODE", "SOURCE", "BY"}}
	for _, m := range p.Mounts {
		mounts = append(mounts, []string{m.Target, m.Type, string(m.Mode), dash(m.Source), dash(m.By)})
	}
	if err := table(w, mounts); err != nil {
		return err
	}
	fmt.Fprintln(w)
	rights := [][]string{{"LANDLOCK", "PATH"}}
	for _, r := range p.Landlock {
		rights = append(rights, []string{r.Right, r.Path})
	}
	return table(w, rights)
}
