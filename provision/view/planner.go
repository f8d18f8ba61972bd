package view

import (
	"log/slog"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/tmux"
)

// Options are the facts of the host that views depend on. Paths are absolute.
type Options struct {
	// Homes is the parent of all homes.
	Homes string
	// Own are chatd's directories, of which no profile exposes a part.
	Own []string
	// Units: systemd starts the sessions, from the file tree of process 1, where pam_namespace(8)
	// has mounted the chat's /tmp and /var/tmp.
	Units bool
	// Shim is the installed chatd-shim, and Programs are the PATHs of the profiles.
	Shim     string
	Programs *session.Programs
	// Layers says which walls are left out.
	Layers *layers.Set
	Log    *slog.Logger
}

// Planner plans what sessions see on one host. Its methods are safe for concurrent use.
type Planner struct {
	opt      Options
	searches *exposure.Searches // for file tools
}

// New returns a Planner.
func New(o Options) *Planner { return &Planner{opt: o, searches: exposure.NewSearches()} }

// Chat is a chat, with what holds for its sessions.
type Chat struct {
	ID  chat.ID
	UID uint32
	// Profile is its profile, with the keys in force; Env are its own variables.
	Profile chat.Profile
	Env     map[string]string
	// Home, Tmp and VarTmp are its directories on the host. The session sees Home at the same
	// path, and the others as /tmp and /var/tmp.
	Home, Tmp, VarTmp string
	// Dir is root's directory of its session.
	Dir     session.Dir
	Network chat.Network
	// Secrets are the variables of its placeholders, "NAME=value".
	Secrets []string
	// OwnTrust: its programs trust what Dir has, and not what the host does.
	OwnTrust bool
	// Denied are what its file rules close as a whole outside the home; see [plan.View].
	Denied []string
}

// Of returns what everything in a session of the chat sees, without exposed paths.
func (p *Planner) Of(c Chat) plan.View {
	if p.opt.Units {
		c.Tmp, c.VarTmp = "/tmp", "/var/tmp"
	}
	v := plan.View{
		User: c.ID.User(), UID: c.UID, Home: c.Home, Tmp: c.Tmp, VarTmp: c.VarTmp,
		Limits: c.Profile.Limits, Network: c.Network,
		Shim:       p.opt.Shim,
		ShimDir:    p.opt.Programs.Shims(c.Profile.Name),
		BinDir:     p.opt.Programs.Bin(c.Profile.Name),
		PromptFIFO: c.Dir.Prompt(), LogFIFO: c.Dir.Log(),
		TmuxConf: tmux.Config(plan.ShellArgv(), plan.LogCommand),
		Vars:     slices.Concat(c.Secrets, chat.EnvLines(c.Profile.Env), chat.EnvLines(c.Env)),
		Opened:   plan.Openings{Netlink: c.Profile.AllowNetlink, Filters: c.Profile.AllowSeccomp},
		Without:  p.opt.Layers.LeftOut(),
		Denied:   c.Denied,
	}
	if c.OwnTrust {
		v.TrustPEM, v.TrustJKS = c.Dir.TrustPEM(), c.Dir.TrustJKS()
	}
	return v
}

// FileTool returns the paths that the file tools may use in the home of a chat of the profile: the
// home, its temporary directories, what the profile grants, by the same expressions, and what it
// exposes.
func FileTool(p chat.Profile, home string) plan.FileTool {
	may := plan.FileTool{
		Workspace: home, Roots: []string{"/tmp", "/var/tmp"},
		ReadOutside: p.AllowReadOutsideWorkspace,
		AllowRead:   slices.Clone(p.AllowReadPaths), AllowWrite: slices.Clone(p.AllowWritePaths),
	}
	for _, e := range p.ExposePaths {
		target := e.At()
		if strings.HasPrefix(target, "~/") {
			continue // the tools may use the home anyway, and the kernel keeps the mode
		}
		exact := "^" + regexp.QuoteMeta(path.Clean(target))
		may.AllowRead = append(may.AllowRead, exact)
		if e.Mode == chat.ReadWrite {
			may.AllowWrite = append(may.AllowWrite, exact)
		}
	}
	return may
}
