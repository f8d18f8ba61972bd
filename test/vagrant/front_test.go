//go:build e2e

package vagrant

import (
	"strings"
	"testing"
)

// TestHostFront: what reads callers' text is one process of the user chatd, in a cgroup of its own
// in chatd's unit, with no capability and no way to one.
func TestHostFront(t *testing.T) {
	pid := strings.TrimSpace(output(t, "pgrep", "-x", "chatd-front"))
	if pid == "" || strings.Contains(pid, "\n") {
		t.Fatalf("fronts: %q", pid)
	}
	if user := strings.TrimSpace(output(t, "ps", "-o", "user=", "-p", pid)); user != "chatd" {
		t.Errorf("it runs as %s", user)
	}
	_, group, _ := strings.Cut(strings.TrimSpace(content(t, "/proc/"+pid+"/cgroup")), "::")
	if !strings.HasSuffix(group, "/chatd.service/chatd.front") {
		t.Errorf("it is in %s", group)
	}
	for file, want := range map[string]string{"memory.max": "1073741824", "pids.max": "512"} {
		if got := strings.TrimSpace(content(t, "/sys/fs/cgroup"+group+"/"+file)); got != want {
			t.Errorf("its %s is %q, want %q", file, got, want)
		}
	}
	status := content(t, "/proc/"+pid+"/status")
	for _, want := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("its status lacks %q:\n%s", want, status)
		}
	}
	if entry := output(t, "getent", "passwd", "chatd"); !strings.Contains(entry, "/usr/sbin/nologin") {
		t.Errorf("its user is %s", entry)
	}
}
