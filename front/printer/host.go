package printer

import (
	"fmt"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// triedWidth is how much of a probe's words a table shows; --json has all of them.
const triedWidth = 64

// Host is what was found when the layers of a host were tried.
func Host(h chat.Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, "chatd %s, kernel %s, backend %s, %d chats, %d awake\n\n%s", Escape(h.Version),
		Escape(h.Kernel), Escape(h.Backend), h.Chats, h.Awake, layers(h.Layers))
	if len(h.Allowed) > 0 {
		fmt.Fprintf(&b, "\nallowed to be missing: %s\n", LayerNames(h.Allowed))
	}
	for _, text := range h.Broken {
		fmt.Fprintf(&b, "broken: %s\n", Cell(text))
	}
	findings(&b, h.Findings)
	return b.String()
}

func findings(b *strings.Builder, all []string) {
	for _, f := range all {
		fmt.Fprintf(b, "finding: %s\n", Cell(f))
	}
}

// LayerNames names layers in a sentence.
func LayerNames(names []chat.LayerName) string {
	var s []string
	for _, n := range names {
		s = append(s, string(n))
	}
	return Escape(strings.Join(s, ", "))
}

// layers is a line for each layer, and everything about those that are not on.
func layers(all []chat.Layer) string {
	var b strings.Builder
	b.WriteString(list([]string{"LAYER", "STATE", "BY", "TRIED"}, all, func(l chat.Layer) []string {
		return []string{string(l.Name), string(l.State), dash(cut(l.By, triedWidth/2)),
			dash(cut(l.Probe, triedWidth))}
	}))
	for _, l := range all {
		if l.State != chat.LayerOn {
			fmt.Fprintf(&b, "\n%s is %s\n  tried: %s\n  fix:   %s\n", Escape(string(l.Name)),
				Escape(string(l.State)), Cell(dash(l.Probe)), Cell(dash(l.Fix)))
		}
	}
	return b.String()
}

// weakLayers names the layers that are not on, for a cell of a table.
func weakLayers(layers []chat.Layer) string {
	var names []string
	for _, l := range layers {
		if l.State != chat.LayerOn {
			names = append(names, string(l.Name))
		}
	}
	return dash(strings.Join(names, ","))
}

// Status is the daemon on one screen.
func Status(st chat.Status, now time.Time) string {
	word := "up"
	if !st.Ready {
		word = "NOT READY"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "chatd %s, %s since %s (%s)\n",
		Escape(st.Version), word, st.Since.Local().Format(zoned), age(now.Sub(st.Since)))
	fmt.Fprintf(&b, "chats: %d, %d awake, %d at work, %d asleep\n",
		st.Chats, st.Awake, st.AtWork, st.Asleep)
	for _, l := range st.Layers {
		fmt.Fprintf(&b, "layer %s is %s: %s\n", Escape(string(l.Name)), Escape(string(l.State)),
			Cell(dash(cut(l.Probe, triedWidth))))
	}
	for _, bound := range st.Bounds {
		fmt.Fprintf(&b, "%s: %d of %d\n", Escape(bound.Name), bound.Used, bound.Max)
	}
	for _, u := range st.Shares {
		b.WriteString(Cell(quota.Warning(u)) + "\n")
	}
	b.WriteString(disks(st.Disks))
	findings(&b, st.Findings)
	for _, f := range st.Failures {
		fmt.Fprintf(&b, "failed %s ago: %s of chat %s by %s: %s\n", age(now.Sub(f.At)),
			Cell(f.Action), Cell(dash(string(f.Chat))), Cell(dash(f.By)), Cell(f.Error))
	}
	return b.String()
}

func disks(all []chat.Disk) string {
	head := []string{"DISK", "OF", "FREE", "SIZE", "FREE INODES", ""}
	return list(head, all, func(d chat.Disk) []string {
		inodes, note := "-", ""
		if d.Inodes > 0 {
			inodes = fmt.Sprintf("%d%%", 100*d.FreeInodes/d.Inodes)
		}
		if d.ReadOnly {
			note = "read-only"
		}
		return []string{d.Path, d.For, size(d.Free), size(d.Size), inodes, note}
	})
}

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
