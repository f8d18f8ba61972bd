package unshare

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestStageNarrows: bubblewrap's namespace has only the mounts of the host that lead to a session's
// paths or lie below them. Where the small tree would show something else, as over a link in a
// mount that no other path needs, all mounts stay.
func TestStageNarrows(t *testing.T) {
	must.Root(t, "it mounts")
	for name, tt := range map[string]struct {
		shared, through string
		want            string // of used, used/in, other, and what is shared
	}{
		"a directory with a mount in it":  {shared: "used", want: "used used/in"},
		"a file in a mount":               {shared: "used/file", want: "used used/file"},
		"below another mount":             {through: "used/in/file", want: "used used/in"},
		"over a link to it":               {shared: "link", want: "other"},
		"nothing of them":                 {shared: "plain", want: "plain"},
		"nothing that is there":           {through: "missing", want: ""},
		"over a link that lies elsewhere": {through: "far", want: "other used used/in"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			var got []string
			var same string
			err := sys.OnThread(func() error {
				return InOwn(func() error {
					trees, err := smallHost(base, tt.shared, tt.through)
					if err == nil {
						_, err = Stage(trees)
					}
					got = below(base)
					if b, err := os.ReadFile(base + "/link/file"); err == nil {
						same = string(b)
					}
					return err
				})
			})
			must.Do(t, err)
			expect.Equal(t, strings.Join(got, " "), tt.want, "mounts are")
			expect.True(t, tt.shared != "link" || same == "other", "over the link is %q", same)
		})
	}
}

// TestNeeded: the mounts on the way to the paths of a start stay, wherever chatd's directories are.
func TestNeeded(t *testing.T) {
	trees := Trees{
		Dir: "/var/lib/run/stage", Through: []string{"/srv/homes/a"}, Shared: []string{"/usr"},
		Mounts: []string{
			"/", "/boot", "/dev", "/proc", "/proc/sys/fs/binfmt_misc", "/run", "/run/lock", "/run/user/0",
			"/srv", "/srv/homes/b", "/srv/homes/a/disk", "/sys", "/sys/fs/cgroup",
			"/sys/kernel/debug", "/usr/local",
		},
	}
	want := "/proc /proc/sys/fs/binfmt_misc /run /srv /srv/homes/a/disk /sys /sys/fs/cgroup /usr/local"
	expect.Equal(t, strings.Join(trees.needed(), " "), want, "needed are")
}

// smallHost mounts used, used/in and other in base, with links to them.
func smallHost(base, shared, through string) (Trees, error) {
	at := func(p string) string { return filepath.Join(base, p) }
	errs := []error{unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")}
	for _, p := range []string{"used", "used/in", "other"} {
		errs = append(errs, os.MkdirAll(at(p), 0o755),
			unix.Mount("test", at(p), "tmpfs", 0, "size=4k"),
			os.WriteFile(at(p)+"/file", []byte(p), 0o644))
	}
	errs = append(errs, os.Mkdir(at("plain"), 0o755), os.MkdirAll(at("stage/empty"), 0o755),
		os.Symlink("other", at("link")), os.Symlink(at("used/in"), at("other/back")),
		os.Symlink("other/back", at("far")))
	trees := Trees{Dir: at("stage"), Empty: []string{at("stage/empty")}, Mounts: mountPoints()}
	for list, p := range map[*[]string]string{&trees.Shared: shared, &trees.Through: through} {
		if p != "" {
			*list = []string{at(p)}
		}
	}
	return trees, errors.Join(errs...)
}

// below are the mounts of smallHost that the calling thread has.
func below(base string) (all []string) {
	for _, m := range mountPoints() {
		if rel, ok := strings.CutPrefix(m, base+"/"); ok {
			all = append(all, rel)
		}
	}
	slices.Sort(all)
	return slices.Compact(all) // an overlay hides what it shows
}

func mountPoints() (all []string) {
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		all = append(all, strings.Fields(lines.Text())[4])
	}
	return all
}
