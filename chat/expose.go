package chat

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Mode says whether a path may only be read.
type Mode string

// The two modes of a path that a session sees.
const (
	ReadOnly  Mode = "ro"
	ReadWrite Mode = "rw"
)

// Expose is one rule of expose_paths: a path of the host that the sessions of a
// profile see.
type Expose struct {
	// Source is the path on the host, a directory or a regular file.
	Source string `json:"source" yaml:"source"`
	// Target is the path in the session; empty means Source. A leading "~/" is the chat's home.
	Target string `json:"target,omitempty" yaml:"target,omitempty"`
	Mode   Mode   `json:"mode" yaml:"mode"`
}

// At is the path at which sessions see it.
func (e Expose) At() string {
	if e.Target == "" {
		return e.Source
	}
	return throughLinks(e.Target)
}

// reservedPaths are paths that chatd itself mounts in every session. Nothing else may be mounted
// at, above or below them.
var reservedPaths = []string{
	"/opt/chatd", "/run", "/proc", "/sys", "/dev", "/tmp", "/var/tmp",
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/etc/passwd", "/etc/group", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf",
	"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	"/etc/localtime", "/etc/os-release", "/etc/services", "/etc/protocols",
}

// neverExposed are host trees that no chat may see, each with the reason. A path that contains one
// may not be exposed either.
var neverExposed = []struct{ path, why string }{
	{"/proc", "it shows everybody's processes"},
	{"/sys", "it shows the host's devices and everybody's cgroups"},
	{"/dev", "it holds the host's devices"},
	{"/run", "sockets of the host's services are in it, and who may write to one acts through it"},
	{"/var/run", "sockets of the host's services are in it, and who may write to one acts through it"},
	{"/root", "it is root's own"},
	{"/boot", "it is the host's kernel"},
	{"/etc/shadow", "it holds passwords"}, {"/etc/shadow-", "it holds passwords"},
	{"/etc/gshadow", "it holds passwords"}, {"/etc/gshadow-", "it holds passwords"},
	{"/etc/ssh", "it holds the host's keys"}, {"/etc/ssl/private", "it holds the host's keys"},
	{"/etc/sudoers", "it says who may become root"}, {"/etc/sudoers.d", "it says who may become root"},
	{"/etc/security", "it is PAM's"}, {"/etc/pam.d", "it is PAM's"},
	{"/etc/chatd", "it is chatd's own"}, {"/etc/userdb", "it names the other chats"},
	{"/var/lib/systemd", "it is systemd's"},
	{"/var/spool/cron", "jobs in it run for their owners"},
}

// systemTrees are never writable from a session, regardless of their files' owners.
var systemTrees = []string{"/etc", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/opt/chatd"}

// related reports whether one of two paths contains the other.
func related(a, b string) bool { return Within(a, b) || Within(b, a) }

// ReservedPath is the reserved path that equals p, contains p or lies below p; empty if none.
func ReservedPath(p string) string {
	for _, own := range reservedPaths {
		if related(p, own) {
			return own
		}
	}
	return ""
}

// checkAbsolute accepts an absolute path without "..".
func checkAbsolute(p string) error {
	switch {
	case p == "":
		return Invalid("it is empty: want an absolute path")
	case strings.IndexByte(p, 0) >= 0:
		return Invalid("%s holds a NUL: want an absolute path", Quote(p))
	case !path.IsAbs(p):
		return Invalid("%s is relative: want an absolute path", Quote(p))
	case slices.Contains(strings.Split(p, "/"), ".."):
		return Invalid("%s holds \"..\": want the path that it leads to", Quote(p))
	}
	return nil
}

// CheckSource says why a session may not see the host's path p in that mode. nil leaves the checks
// that need the host's file system.
func CheckSource(p string, mode Mode) error {
	if err := checkAbsolute(p); err != nil {
		return err
	}
	p = path.Clean(p)
	if p == "/" {
		return Invalid("it is the whole host: want a directory or a file of it")
	}
	for _, n := range neverExposed {
		if related(p, n.path) {
			return Invalid("%s may not be exposed: %s: %s: want a path apart from it", Quote(p), n.path,
				n.why)
		}
	}
	for _, dir := range systemTrees {
		if mode == ReadWrite && related(p, dir) {
			return Invalid("%s may not be exposed rw: every user of the host runs or reads what is in %s: want mode ro",
				Quote(p), dir)
		}
	}
	return nil
}

// checkTarget says why p may not be a mount point.
func checkTarget(p string) error {
	home, ok := strings.CutPrefix(p, "~/")
	if ok {
		if err := checkAbsolute("/" + home); err != nil {
			return Invalid("%s: want a path below the home", Quote(p))
		}
		p = path.Clean("/" + home)
		for _, dir := range []string{"tmp", "config", "cache", "state"} {
			if own := "/" + UserEnv + "/" + dir; Within(own, p) {
				return Invalid("%s would cover the chat's own ~%s: want a path beside it", Quote("~"+p), own)
			}
		}
		return nil
	}
	if err := checkAbsolute(p); err != nil {
		return err
	}
	p = path.Clean(p)
	if p == "/" {
		return Invalid("it is the whole session: want a path in it")
	}
	if own := ReservedPath(p); own != "" {
		return Invalid("%s would cover chatd's own %s, or lie in it: want another target", Quote(p), own)
	}
	return nil
}

// check reports the first invalid field, and its key.
func (e Expose) check() (field string, err error) {
	if e.Mode != ReadOnly && e.Mode != ReadWrite {
		return ".mode", Invalid("%s: want ro or rw", Quote(string(e.Mode)))
	}
	if err := CheckSource(e.Source, e.Mode); err != nil {
		return ".source", err
	}
	if err := checkTarget(e.At()); err != nil {
		return ".target", err
	}
	return "", nil
}

// clean is e with an explicit target and clean paths.
func (e Expose) clean() Expose {
	e.Source, e.Target = path.Clean(e.Source), path.Clean(e.At())
	return e
}

// CheckExposePaths reports the first invalid rule, and its key: the index in the list and the
// field. Two rules may not have the same target.
func CheckExposePaths(rules []Expose) (key string, err error) {
	seen := map[string]int{}
	for i, e := range rules {
		if field, err := e.check(); err != nil {
			return fmt.Sprintf("expose_paths[%d]%s", i, field), err
		}
		at := e.clean().Target
		if first, ok := seen[at]; ok {
			return fmt.Sprintf("expose_paths[%d]",
					i), Invalid("target %s has a rule already, expose_paths[%d]: want one rule for each target",
					Quote(at), first)
		}
		seen[at] = i
	}
	return "", nil
}

// OverrideExpose merges two lists. For a target in both, the rule of later wins.
func OverrideExpose(earlier, later []Expose) []Expose {
	var out []Expose
	for _, e := range slices.Concat(earlier, later) {
		e = e.clean()
		i := slices.IndexFunc(out, func(o Expose) bool { return o.Target == e.Target })
		if i < 0 {
			out = append(out, e)
			continue
		}
		out[i] = e
	}
	return out
}

// Within reports whether p is dir or below it. Both are clean (path.Clean). It compares text only
// and does not resolve links.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}

// Exposed is one path of the host that a session sees beyond those that every session sees. Source
// is resolved: no part of it is a link, and no chat can replace a part. A Target in the home
// already exists.
type Exposed struct {
	Source string `json:"source"`
	Target string `json:"target"`
	Mode   Mode   `json:"mode"`
	// File means that Source is a regular file, not a directory.
	File bool `json:"file,omitempty"`
	// Exec means that programs in it may be executed even if it is read-only.
	Exec bool `json:"exec,omitempty"`
	// By is the profile's key that exposes it.
	By string `json:"by"`
}

// UserEnv is the directory of a home that the XDG_ variables point into.
const UserEnv = "runtime-user-env"

// InstanceDirs are the directories that every home has, relative to it: the agent's files and
// the directories of the XDG_ variables. Parents precede their children.
func InstanceDirs() []string {
	return []string{"skills", "logs", "cache", "state", UserEnv, UserEnv + "/tmp", ".config", ".cache",
		".local", ".local/share", ".local/state"}
}

// InstanceLink is a second name of a directory of a home, both relative to the home.
type InstanceLink struct{ Name, Dir string }

// Target is the link's content: the directory relative to the link's own.
func (l InstanceLink) Target() string {
	return strings.Repeat("../", strings.Count(l.Name, "/")) + l.Dir
}

// InstanceLinks are the directories below [UserEnv] to which the XDG_ variables point. Each link
// leads to the directory that programs use by default, and in which a skeleton has its files.
func InstanceLinks() []InstanceLink {
	return []InstanceLink{
		{UserEnv + "/config", ".config"}, {UserEnv + "/cache", ".cache"},
		{UserEnv + "/state", ".local/state"},
	}
}

// throughLinks resolves the [InstanceLinks] in a path that begins with "~/".
func throughLinks(p string) string {
	for _, l := range InstanceLinks() {
		if rest, ok := strings.CutPrefix(p, "~/"+l.Name+"/"); ok {
			return path.Join("~", l.Dir, rest)
		}
	}
	return p
}
