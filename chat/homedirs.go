package chat

import (
	"path"
	"strings"
)

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
