//go:build e2e

package vagrant

import (
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestHostFront: what reads callers' text is one process of the user chatd, in a cgroup of its own
// in chatd's unit, with no capability and no way to one.
func TestHostFront(t *testing.T) {
	pid := strings.TrimSpace(output(t, "pgrep", "-x", "chatd-front"))
	must.True(t, pid != "" && !strings.Contains(pid, "\n"), "fronts: %q", pid)
	expect.Equal(t, strings.TrimSpace(output(t, "ps", "-o", "user=", "-p", pid)), "chatd", "it runs as")
	_, group, _ := strings.Cut(strings.TrimSpace(content(t, "/proc/"+pid+"/cgroup")), "::")
	expect.True(t, strings.HasSuffix(group, "/chatd.service/chatd.front"), "it is in %s", group)
	for file, want := range map[string]string{"memory.max": "1073741824", "pids.max": "512"} {
		expect.Equal(t, strings.TrimSpace(content(t, "/sys/fs/cgroup"+group+"/"+file)), want,
			"its %s", file)
	}
	status := content(t, "/proc/"+pid+"/status")
	for _, want := range []string{"CapEff:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		expect.True(t, strings.Contains(status, want), "its status lacks %q:\n%s", want, status)
	}
	if entry := output(t, "getent", "passwd", "chatd"); !strings.Contains(entry, "/usr/sbin/nologin") {
		t.Errorf("its user is %s", entry)
	}
}
