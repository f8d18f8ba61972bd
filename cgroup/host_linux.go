package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// controllers are what the limits need; with fewer a mode is not used.
var controllers = []string{"memory", "pids", "cpu"}

// furtherLegacy are the v1 controllers that only some limits need. A chat without such a limit
// has no cgroup of them, and a host that lacks them is as good for it. Under cgroup v2 the same
// holds of io: see optionalIO.
var furtherLegacy = []string{"blkio"}

// allLegacy are the v1 controllers that chats may be bounded by.
func allLegacy() []string { return slices.Concat(controllers, furtherLegacy) }

// host is the cgroup file systems as this process sees them.
type host struct {
	// unified is this process's own directory in the cgroup2 tree.
	unified string
	// offered are the controllers that unified may give to its children.
	offered []string
	// legacy is this process's own directory by v1 controller.
	legacy map[string]string
}

// readHost finds the mounts in /proc/self/mountinfo and this process's own place
// in /proc/self/cgroup (cgroups(7)).
func readHost() (host, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return host{}, fmt.Errorf("cannot read the mounts: %w", err)
	}
	mounts, err := parseMounts(string(info))
	if err != nil {
		return host{}, err
	}
	own, err := cgroupsOf("self")
	if err != nil {
		return host{}, err
	}
	return findHost(mounts, own)
}

// cgroupsOf reads where a process is; see [parseOwn].
func cgroupsOf(pid string) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cannot see which cgroups process %s is in: %w", pid, err)
	}
	return parseOwn(string(text))
}

func findHost(mounts []mount, own map[string]string) (host, error) {
	h := host{legacy: map[string]string{}}
	for _, m := range mounts {
		if m.Kind == "cgroup2" && h.unified == "" {
			if dir, err := m.below(own[""]); err == nil && own[""] != "" {
				h.unified = dir
			}
		}
		for _, c := range allLegacy() {
			if m.Kind != "cgroup" || !m.controls(c) || h.legacy[c] != "" {
				continue
			}
			dir, err := m.below(own[c])
			if err != nil && slices.Contains(furtherLegacy, c) {
				continue
			}
			if err != nil {
				return host{}, err
			}
			h.legacy[c] = dir
		}
	}
	if h.unified == "" {
		return host{}, fmt.Errorf("cannot use cgroups: no cgroup2 file system is mounted that shows this process; "+
			"mount one: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified: %w",
			chat.ErrUnsupported)
	}
	var err error
	h.offered, err = words(filepath.Join(h.unified, "cgroup.controllers"))
	return h, err
}

// mode decides between v2 and v1, and says what is missing when neither is whole.
func (h host) mode() (string, error) {
	if missing(h.offered, controllers) == nil {
		return modeV2, nil
	}
	var lacking []string
	for _, c := range controllers {
		if h.legacy[c] == "" {
			lacking = append(lacking, c)
		}
	}
	if lacking == nil {
		return modeV1, nil
	}
	return "", fmt.Errorf("cannot use cgroups: %s offers %q and cgroup v1 lacks %q; give the controllers memory, pids and cpu to that "+
		"cgroup (systemd: Delegate=yes; by hand: write '+memory +pids +cpu' to cgroup.subtree_control of each cgroup above it): %w",
		h.unified, h.offered, lacking, chat.ErrUnsupported)
}

func missing(have, want []string) []string {
	var m []string
	for _, w := range want {
		if !slices.Contains(have, w) {
			m = append(m, w)
		}
	}
	return m
}

func words(file string) ([]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read cgroup file: %w", err)
	}
	return strings.Fields(string(b)), nil
}
