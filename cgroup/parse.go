package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/internal/sys"
)

// mount is a mount of a cgroup file system.
type mount struct{ sys.Mount }

// controls reports whether a mount of cgroup v1 has the controller.
func (m mount) controls(name string) bool { return slices.Contains(strings.Split(m.Super, ","), name) }

// parseMounts reads /proc/self/mountinfo and keeps the cgroup file systems.
func parseMounts(text string) (mounts []mount, err error) {
	all, err := sys.ParseMounts(text)
	for _, m := range all {
		if m.Kind == "cgroup" || m.Kind == "cgroup2" {
			mounts = append(mounts, mount{m})
		}
	}
	return mounts, err
}

// parseOwn reads /proc/PID/cgroup of cgroups(7): the path by controller, and that
// of cgroup2 under "".
func parseOwn(text string) (map[string]string, error) {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !strings.HasPrefix(f[2], "/") {
			return nil, fmt.Errorf("cannot read a cgroup file: bad line %q", line)
		}
		for c := range strings.SplitSeq(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own, nil
}

// below is where the cgroup path is found under the mount, or an error when the
// mount does not show it: a mount of another part of the tree, or a path above
// the root of the cgroup namespace.
func (m mount) below(path string) (string, error) {
	rel, err := filepath.Rel(m.Root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || strings.HasPrefix(path, "/..") {
		return "", fmt.Errorf("cannot find the cgroup %s under the mount %s: it shows %s", path,
			m.Path, m.Root)
	}
	return filepath.Join(m.Path, rel), nil
}
