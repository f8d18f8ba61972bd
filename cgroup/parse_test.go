package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const hybrid = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/x /sys/fs/cgroup/mem\040ory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
`

func TestParseMounts(t *testing.T) {
	m, err := parseMounts(hybrid)
	must.True(t, err == nil && len(m) == 3, "got %+v, %v", m, err)
	if m[1].Path != "/sys/fs/cgroup/mem ory" || m[1].Root != "/docker/x" || !m[0].controls("cpuacct") || m[0].controls("memory") || m[2].Kind != "cgroup2" {
		t.Errorf("got %+v", m)
	}
	for _, bad := range []string{"x\n", "1 2 3 4 5\n", "1 2 3 / /x rw - cgroup\n"} {
		expect.True(t, expect.Err(parseMounts(bad)) != nil, "%q was read", bad)
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{"/", "/", "/m"},
		{"/", "/a/b", "/m/a/b"},
		{"/docker/x", "/docker/x", "/m"},
		{"/docker/x", "/docker/x/y", "/m/y"},
		{"/docker/x", "/docker/xy", ""},
		{"/docker/x", "/", ""},
		{"/", "/../other", ""},
	} {
		got, err := mount{sys.Mount{Root: c.root, Path: "/m"}}.below(c.path)
		expect.True(t, got == c.want && (err == nil) == (c.want != ""),
			"%s under %s: %q, %v, want %q", c.path, c.root, got, err, c.want)
	}
}

func TestParseOwn(t *testing.T) {
	own, err := parseOwn("9:name=systemd:/\n1:cpu,cpuacct:/a:b\n0::/u\n")
	expect.True(t, err == nil && own["cpu"] == "/a:b" && own["cpuacct"] == "/a:b" && own[""] == "/u",
		"got %v, %v", own, err)
	for _, bad := range []string{"x", "1:cpu:rel", "1:cpu"} {
		expect.True(t, expect.Err(parseOwn(bad)) != nil, "%q was read", bad)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add(hybrid)
	f.Add(`1 2 3 /\0 /\999 rw - cgroup2 x \`)
	f.Fuzz(func(t *testing.T, text string) {
		mounts, err := parseMounts(text)
		for _, m := range mounts {
			if err != nil || m.Kind != "cgroup" && m.Kind != "cgroup2" {
				t.Errorf("%+v, %v", m, err)
			}
		}
	})
}

func FuzzParseOwn(f *testing.F) {
	f.Add("4:memory:/process_api/x\n0::/\n")
	f.Fuzz(func(t *testing.T, text string) {
		own, err := parseOwn(text)
		for _, p := range own {
			expect.True(t, err == nil && strings.HasPrefix(p, "/"), "%q, %v", p, err)
		}
	})
}

// FuzzBelow: whatever /proc says, the base stays under the mount.
func FuzzBelow(f *testing.F) {
	f.Add("/docker/x", "/docker/x/../../y")
	f.Fuzz(func(t *testing.T, root, path string) {
		dir, err := mount{sys.Mount{Root: root, Path: "/m"}}.below(path)
		if err == nil && dir != "/m" && !strings.HasPrefix(dir, "/m/") {
			t.Errorf("%q", dir)
		}
	})
}

// TestOOMLogFinding: a host whose kernel lists all tasks at each OOM kill is told what to set.
func TestOOMLogFinding(t *testing.T) {
	setting := filepath.Join(t.TempDir(), "oom_dump_tasks")
	for value, want := range map[string]bool{"0\n": false, "1\n": true} {
		must.Do(t, os.WriteFile(setting, []byte(value), 0o600))
		found := strings.Join(OOMLogFinding(setting), "\n")
		expect.True(t, strings.Contains(found, "sysctl -w vm.oom_dump_tasks=0") == want,
			"%q: %q", value, found)
	}
	found := OOMLogFinding(filepath.Join(t.TempDir(), "none"))
	expect.True(t, len(found) == 0, "a kernel without it: %q", found)
}
