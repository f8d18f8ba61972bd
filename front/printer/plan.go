package printer

import (
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Plan is what a session is built of: its settings, its mounts, and what Landlock opens.
func Plan(p chat.Plan) string {
	mounts := list([]string{"TARGET", "TYPE", "MODE", "SOURCE", "BY"}, p.Mounts,
		func(m chat.Mount) []string {
			return []string{m.Target, m.Type, string(m.Mode), dash(m.Source), dash(m.By)}
		})
	rights := list([]string{"LANDLOCK", "PATH"}, p.Landlock, func(r chat.PathRight) []string {
		return []string{r.Right, r.Path}
	})
	return table(planRows(p)) + "\n" + mounts + "\n" + rights
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
