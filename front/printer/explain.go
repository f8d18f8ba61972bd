package printer

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
)

// denied is the verdict of file rules and of the guard that refuses.
const denied = "deny"

// Explained is what file rules say of a path, or of a shell command with what the guard says of it;
// command is "" for a path.
func Explained(command string, a chat.Explained) string {
	name, verdict := cmp.Or(a.Name, command), a.Verdict
	if a.Guard != nil && a.Guard.Verdict == denied {
		verdict = denied // no run of it begins, whatever the file rules say
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", verdict, Cell(name))
	if a.Rule != "" {
		fmt.Fprintf(&b, "  rule:  %s\n  place: %s\n  layer: %s\n", Cell(a.Rule), Cell(a.Place),
			a.Layer)
	}
	if a.ByKernel {
		b.WriteString("  by:    the kernel, which keeps it closed or read-only for every program\n")
	}
	if len(a.KeptBy) > 0 {
		fmt.Fprintf(&b, "  kept:  %s\n", strings.Join(a.KeptBy, ", "))
	}
	if a.Rule == "" {
		b.WriteString("  no file rule is about it\n")
	}
	if a.Why != "" {
		fmt.Fprintf(&b, "  why:   %s\n", Cell(a.Why))
	}
	if command != "" {
		fmt.Fprintf(&b, "  paths: %s\n", Cell(dash(strings.Join(a.Paths, " "))))
	}
	if a.Guard != nil {
		b.WriteString(guarded(*a.Guard))
	}
	b.WriteString(deniedBy(a.DeniedBy))
	return b.String()
}

// deniedBy says what denies, the first one in front, and what opens it.
func deniedBy(all []chat.DeniedBy) (out string) {
	for _, d := range all {
		out += fmt.Sprintf("  denied by %s: %s\n    fix: %s\n", d.By, Cell(d.Why), Cell(d.Fix))
	}
	return out
}

// Destination is what a profile's egress says of a port of a host.
func Destination(a chat.Explained) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", a.Verdict, Cell(a.Name))
	if a.Rule != "" {
		fmt.Fprintf(&b, "  entry: %s\n  place: %s\n", Cell(a.Rule), Cell(a.Place))
	}
	fmt.Fprintf(&b, "  why:   %s\n%s", Cell(a.Why), deniedBy(a.DeniedBy))
	return b.String()
}

func guarded(g chat.Guarded) string {
	if g.Verdict != denied {
		return fmt.Sprintf("  guard: %s\n", Cell(g.Verdict))
	}
	return fmt.Sprintf("  guard: %s\n    rule:    %s, %s\n    command: %s\n    because: %s; %s\n",
		Cell(g.Message), Cell(g.Rule), Cell(g.Place), Cell(g.Command), Cell(g.Reason),
		Cell(g.Instead))
}
