package runs

import (
	"path"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// judge collects what denies, in the order in which they are asked.
type judge struct {
	plan chat.Plan
	e    *chat.Explained
}

const (
	noSetting = "no setting opens this"
	noNetwork = "its profile has network none"
)

func (j judge) deny(by, why, fix string) {
	same := func(d chat.DeniedBy) bool { return d.By == by && d.Why == why }
	if !slices.ContainsFunc(j.e.DeniedBy, same) {
		j.e.DeniedBy = append(j.e.DeniedBy, chat.DeniedBy{By: by, Why: why, Fix: fix})
	}
}

// in is a key of the chat's profile in the config.
func (j judge) in(key string) string { return key + " of profile " + j.plan.Profile + " in the config" }

// reported adds the denials that the answer has from the guard, the rules or egress.
func (j judge) reported(q chat.Question) {
	if g := j.e.Guard; g != nil && g.Verdict == denied {
		j.deny("guard", g.Reason, j.in("guard.custom_allow_patterns, or guard.preset: none,"))
	}
	switch {
	case j.e.Verdict != denied:
	case q.Host == "":
		fix := "ask an operator for " + j.in("file_rules")
		if j.e.Place != "" {
			fix = "change the rule at " + j.e.Place
		}
		j.deny("rules", strings.TrimSpace("the file rules deny it: "+j.e.Rule), fix)
	case j.plan.Network == chat.NetworkNone:
		j.deny("egress", j.e.Why, j.in("network: own and egress: ["+j.e.Name+"]"))
	default:
		j.deny("egress", j.e.Why, "add "+j.e.Name+" to "+j.in("egress"))
	}
}

// names are the name of a path and what links of the chat or of the view lead to.
func (j judge) names(name string) []string {
	all := []string{name}
	if j.e.Real != "" && j.e.Real != name {
		all = append(all, j.e.Real)
	}
	for i, n := range all {
		for _, m := range j.plan.Mounts {
			if m.Type == chat.MountLink && chat.Within(n, m.Target) {
				all[i] = path.Join("/", m.Source, strings.TrimPrefix(n, m.Target))
			}
		}
	}
	return all
}

// workspace compares a path with what the file tools may use; op is bash for programs.
func (j judge) workspace(t chat.Terms, op filewire.Op, name string) error {
	if op != filewire.Read && op != filewire.Write && op != filewire.Edit {
		return nil
	}
	may, err := filewire.Options{
		Workspace: t.Home, Roots: []string{"/tmp", "/var/tmp"}, ReadOutside: t.ReadOutside,
		AllowRead: t.AllowRead, AllowWrite: t.AllowWrite,
	}.Grants()
	for _, n := range j.names(name) {
		if err == nil && !may.Reaches(op, n) {
			key := "allow_write_paths"
			if op == filewire.Read {
				key = "allow_read_paths"
			}
			j.deny("workspace", "file tools may not use "+chat.QuotePath(n), j.in(key))
		}
	}
	return err
}

// path asks what the session has of a path, and what the kernel refuses there.
func (j judge) path(name string, write bool) {
	names := j.names(name)
	at := names[len(names)-1]
	m, seen := j.mountOf(at)
	refused := ""
	if m.Type == chat.MountBind && (m.Mode == chat.ReadWrite || m.By != "") { // a file tool sees it
		refused = j.e.Refused
	}
	switch shown := chat.QuotePath(at); {
	case !seen:
		j.deny("view", shown+" is not in the view of the chat", j.in("expose_paths")+
			" shows it; owner and mode stay as the host has them")
	case write && !j.granted(at, true, m):
		fix := noSetting
		if m.By != "" {
			fix = j.in(m.By + ", with mode: rw,")
		}
		j.deny("view", shown+" is read-only in the view of the chat", fix)
	case !write && !j.granted(at, false, m):
		j.deny("view", "no program of the chat may read "+shown, noSetting)
	case write && strings.Contains(refused, "w"), !write && strings.Contains(refused, "r"):
		const why = "its owner and mode, or its mount, do not let the chat use "
		j.deny("view", why+shown, "chmod by its owner")
	}
}

// mountOf is the entry of the view that has a path. A directory that leads to one is read-only.
func (j judge) mountOf(at string) (last chat.Mount, seen bool) {
	for _, m := range j.plan.Mounts {
		whole := m.Type == chat.MountBind || m.Type == chat.MountProc ||
			m.Type == chat.MountTmpfs && m.Target != "/"
		switch {
		case whole && chat.Within(at, m.Target), at == m.Target:
			last, seen = m, true
		case m.Type == chat.MountDev && (chat.Within(at, "/dev/pts") ||
			path.Dir(at) == m.Target && slices.Contains(devices, path.Base(at))):
			last, seen = m, true
		case !seen && chat.Within(m.Target, at):
			last, seen = chat.Mount{Type: chat.MountDir, Target: at, Mode: chat.ReadOnly}, true
		}
	}
	return last, seen
}

// devices are those of bwrap(1), --dev.
var devices = []string{
	"null", "zero", "full", "random", "urandom", "tty", "ptmx", "fd", "stdin", "stdout", "stderr", "core",
}

// granted reports whether Landlock, as far as it is there, and the mount let programs use a path.
func (j judge) granted(at string, write bool, m chat.Mount) bool {
	writes := []string{"write", "write_files", "devices", "device_dirs"}
	right := func(kinds ...string) bool {
		return slices.ContainsFunc(j.plan.Landlock, func(r chat.PathRight) bool {
			return len(kinds) == 0 && chat.Within(at, r.Path) || slices.Contains(kinds, r.Right) &&
				chat.Within(at, r.Path) && (at != r.Path || r.Right != "device_dirs")
		})
	}
	switch {
	case !write:
		return len(j.plan.Landlock) == 0 || right()
	case len(j.plan.Landlock) == 0:
		return m.Mode == chat.ReadWrite || m.Type == chat.MountDev
	}
	return right(writes...) && (m.Mode == chat.ReadWrite || right(writes[1:]...))
}
