package printer

import (
	"fmt"
	"io"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Plan is what a session is built of: its settings, its mounts, and what Landlock opens.
func Plan(w io.Writer, p chat.Plan) error {
	if err := table(w, planRows(p)); err != nil {
		return err
	}
	mounts := [][]string{{"TARGET", "TYPE", "MODE", "SOURCE", "BY"}}
	for _, m := range p.Mounts {
		row := []string{m.Target, m.Type, string(m.Mode), dash(m.Source), dash(m.By)}
		mounts = append(mounts, row)
	}
	rights := [][]string{{"LANDLOCK", "PATH"}}
	for _, r := range p.Landlock {
		rights = append(rights, []string{r.Right, r.Path})
	}
	for _, rows := range [][][]string{mounts, rights} {
		if err := write(w, "\n"); err != nil {
			return err
		}
		if err := table(w, rows); err != nil {
			return err
		}
	}
	return nil
}

func planRows(p chat.Plan) [][]string {
	started := "would start with this"
	if p.StartedAt != nil {
		started = p.StartedAt.Format("2006-01-02 15:04:05 MST")
	}
	rows := [][]string{
		{"id", string(p.ID)}, {"profile", p.Profile},
		{"user", fmt.Sprintf("%s, uid %d", p.User, p.UID)}, {"session", started},
		{"network", string(p.Network)}, {"namespaces", strings.Join(p.Namespaces, " ")},
		{"environment", strings.Join(p.Env, " ")},
		{"seccomp",
			fmt.Sprintf("%d calls refused, %d checked by their arguments (--json lists them)",
				len(p.Seccomp), len(p.SeccompConditional))},
		{"landlock", fmt.Sprintf("%d rules, ABI %d or later", len(p.Landlock), p.LandlockABI)},
	}
	if len(p.Without) > 0 {
		rows = append(rows, []string{"without", LayerNames(p.Without)})
	}
	for _, n := range p.Notes {
		rows = append(rows, []string{"note", n})
	}
	return rows
}
