package sys

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mount is one line of mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID, Parent int    // Parent is the mount that it is on
	Dev        string // major:minor
	// Root is the directory of its file system that is mounted at Path.
	Root, Path string
	Kind       string // of its file system
	Source     string // as given to mount(2)
	// Writable: neither the mount nor the file system is read-only.
	Writable bool
	// Super are the options of the file system, with commas between.
	Super string
}

// ParseMounts reads the text of a mountinfo. An unreadable line is an error, because a missed mount
// would be a tree that is not checked.
func ParseMounts(text string) ([]Mount, error) {
	var all []Mount
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		sep := 6
		for sep < len(f) && f[sep] != "-" {
			sep++
		}
		if sep+3 > len(f) {
			return nil, fmt.Errorf("cannot read mounts: a line is %.200q", line)
		}
		id, err := strconv.Atoi(f[0])
		parent, errParent := strconv.Atoi(f[1])
		if err != nil || errParent != nil {
			return nil, fmt.Errorf("cannot read mounts: want two numbers in front of %.200q", line)
		}
		m := Mount{ID: id, Parent: parent, Dev: f[2], Kind: f[sep+1]}
		m.Root, m.Path, m.Source = unescape(f[3]), unescape(f[4]), unescape(f[sep+2])
		if sep+3 < len(f) {
			m.Super = f[sep+3]
		}
		m.Writable = !slices.Contains(strings.Split(m.Super+","+f[5], ","), "ro")
		all = append(all, m)
	}
	return all, nil
}

// ComparePaths sorts a directory before what is in it, and all that is in it before
// other names: a path is compared name by name.
func ComparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// unescape takes the octal away in which the kernel writes blanks, newlines and \.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
