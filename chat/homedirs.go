package chat

import (
	"path"
	"strings"
)

// UserEnv is the directory of a home that TMPDIR and the XDG_ variables point into.
const UserEnv = "runtime-user-env"

// InstanceDirs are the directories that every home has, relative to it: what the
// agent keeps, TMPDIR, and what the XDG_ variables mean. Parents come before what is in them.
func InstanceDirs() []string {
	return []string{"skills", "logs", "cache", "state", UserEnv, UserEnv + "/tmp", ".config", ".cache", ".local", ".local/share", ".local/state"}
}

// InstanceLink is a second name of a directory of a home, both relative to the home.
type InstanceLink struct{ Name, Dir string }

// Target is what the link holds: the directory as seen from where the link lies.
func (l InstanceLink) Target() string {
	return strings.Repeat("../", strings.Count(l.Name, "/")) + l.Dir
}

// InstanceLinks are the directories below [UserEnv] to which the XDG_ variables point. Each
// is the directory that a program uses which does not read the variable, and where a
// skeleton has its files: one place under two names.
func InstanceLinks() []InstanceLink {
	return []InstanceLink{
		{UserEnv + "/config", ".config"}, {UserEnv + "/cache", ".cache"}, {UserEnv + "/state", ".local/state"},
	}
}

// throughLinks is a path of a home, "~/" in front, by the name that is no link.
func throughLinks(p string) string {
	for _, l := range InstanceLinks() {
		if rest, ok := strings.CutPrefix(p, "~/"+l.Name+"/"); ok {
			return path.Join("~", l.Dir, rest)
		}
	}
	return p
}
