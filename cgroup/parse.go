package cgroup

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo, as proc_pid_mountinfo(5) has it.
type mount struct {
	root  string // of the mount within its file system
	point string // relative to the process's root
	kind  string // "cgroup", "cgroup2", …
	super []string
}

// parseMounts reads /proc/self/mountinfo and keeps the cgroup file systems.
func parseMounts(text string) ([]mount, error) {
	var mounts []mount
	for line := range strings.Lines(text) {
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(g) < 3 {
			return nil, fmt.Errorf("cannot read mountinfo: bad line %q", line)
		}
		if g[0] != "cgroup" && g[0] != "cgroup2" {
			continue
		}
		mounts = append(mounts, mount{unescape(f[3]), unescape(f[4]), g[0], strings.Split(g[2], ",")})
	}
	return mounts, nil
}

// unescape undoes the octal escapes of mountinfo: \040 is a blank.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
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
	rel, err := filepath.Rel(m.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || strings.HasPrefix(path, "/..") {
		return "", fmt.Errorf("cannot find the cgroup %s under the mount %s: it shows %s", path, m.point, m.root)
	}
	return filepath.Join(m.point, rel), nil
}

// flat finds one "key value" of files such as cpu.stat and memory.events; a key
// that is not there is 0, as kernels add keys over time.
func flat(text, key string) (uint64, error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 2 && f[0] == key {
			return number(f[1])
		}
	}
	return 0, nil
}

// number reads a counter; "max" is the largest one.
func number(text string) (uint64, error) {
	s := strings.TrimSpace(text)
	if s == "max" {
		return 1<<64 - 1, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("cannot read a counter: %w", err)
	}
	return n, nil
}
