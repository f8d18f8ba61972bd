package scan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// check is must on another goroutine than the test's.
func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		expect.NoError(t, err)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "needs root, and CHATD_TEST_REQUIRE=all")
		t.Skip("SKIPPED: needs root")
	}
}

func TestWanted(t *testing.T) {
	spent := [][2]uint32{{5, 5}, {7, 9}, {20, 30}}
	for uid := range uint32(40) {
		want := uid == 5 || uid >= 7 && uid <= 9 || uid >= 20 && uid <= 30
		expect.True(t, wanted(spent, uid) == want, "uid %d: %v", uid, !want)
	}
}

// TestMounts: network and FUSE file systems are left out by name, and so is all that is
// reached through them, whatever it is.
func TestMounts(t *testing.T) {
	mounts := must.Get(sys.ParseMounts(`1 0 254:0 / / rw - ext4 /dev/vda rw
2 1 0:1 / /proc rw - proc proc rw
3 1 0:2 / /dev rw - devtmpfs devtmpfs rw
4 3 0:3 / /dev/shm rw - tmpfs tmpfs rw
5 1 0:4 / /home/u/far rw - fuse.sshfs far rw
6 5 8:1 / /home/u/far/near rw - ext4 /dev/sda1 rw
7 6 0:9 / /home/u/far/near/t rw - tmpfs t rw
8 1 0:5 / /net rw - nfs4 server:/ rw
9 1 0:6 / /auto rw - autofs auto rw
10 9 0:7 / /auto/x rw - xfs /dev/sdb rw
11 1 0:8 / /var/lib/docker/overlay2/a/merged rw - overlay overlay rw
12 1 8:3 / /srv rw - btrfs /dev/sdc rw
13 13 8:4 / /self rw - xfs /dev/sdd rw
`))(t)
	same := func(what string, got []sys.Mount, want ...string) {
		var paths []string
		for _, m := range got {
			paths = append(paths, m.Path)
		}
		expect.True(t, slices.Equal(paths, want), "%s %q, want %q", what, paths, want)
	}
	walked, left := chooseMounts(mounts, nil)
	same("it walks", walked, "/", "/dev/shm", "/self", "/srv")
	same("it leaves out", left, "/home/u/far", "/home/u/far/near", "/home/u/far/near/t", "/net", "/auto/x")
	merged := "/var/lib/docker/overlay2/a/merged"
	walked, left = chooseMounts(mounts, []string{"/srv", "/net", "/proc", merged})
	same("of four it walks", walked, "/srv")
	same("of four it leaves out", left, "/proc", "/net", merged)
	mounts[0].Kind = "overlay"
	walked, _ = chooseMounts(mounts, []string{"/"})
	expect.True(t, len(walked) == 1, "it leaves out a root that is an overlay")
	for _, circle := range [][2]int{{20, 21}, {21, 20}} {
		m := sys.Mount{ID: circle[0], Parent: circle[1], Kind: "ext4", Path: "/circle"}
		mounts = append(mounts, m)
	}
	walked, _ = chooseMounts(mounts, []string{"/circle"})
	expect.True(t, len(walked) == 0, "it walks mounts that no root carries")
}

// inMounts runs act in a mount namespace of its own, with the mounts there.
func inMounts(t *testing.T, act func()) {
	t.Helper()
	must.Do(t, sys.OnThread(func() error {
		err := unix.Unshare(unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			act()
		}
		return err
	}))
}

// mounted mounts an empty file system, and returns what unmounts it.
func mounted(t *testing.T, dir string) func() {
	check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	return func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) }
}

// under is a request for files of anyUID on the mounts.
func under(mounts ...string) chat.StrayRequest {
	return chat.StrayRequest{Spent: [][2]uint32{{anyUID, anyUID}}, Under: mounts, For: time.Hour}
}

// walkOf walks mounts of this thread's namespace.
func walkOf(t *testing.T, req chat.StrayRequest) (finds, unseen []string, end chat.StrayEnd) {
	t.Helper()
	mounts, err := sys.ReadMounts("/proc/thread-self/mountinfo")
	check(t, err)
	end = newWalk(req, func(l chat.StrayLine) error {
		if l.Find != nil {
			finds = append(finds, string(l.Find.Path))
		} else {
			unseen = append(unseen, string(l.Unseen.Path)+": "+l.Unseen.Why)
		}
		return nil
	}).all(mounts)
	slices.Sort(finds)
	return finds, unseen, end
}

const anyUID = 1999990000

func owned(t *testing.T, name string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0),
		os.Chown(name, anyUID, 0))
}

// TestWalk: a walk finds by uid, whatever the name; it follows no link and enters no mount, neither
// of a directory nor of a file.
func TestWalk(t *testing.T) {
	needsRoot(t)
	top, other := t.TempDir(), t.TempDir()
	inMounts(t, func() {
		defer mounted(t, top)()
		defer mounted(t, other)()
		for _, name := range []string{"a/b/c/x", "new\nline", "bad\xff", "a/y1", "a/y2", "-rf"} {
			owned(t, filepath.Join(top, name))
		}
		owned(t, filepath.Join(other, "elsewhere"))
		check(t,
			os.Symlink(other, filepath.Join(top, "link")),
			os.Mkdir(filepath.Join(top, "mount"), 0o700),
			os.WriteFile(filepath.Join(top, "file"), nil, 0o600),
			unix.Mount(other, filepath.Join(top, "mount"), "", unix.MS_BIND, ""),
			unix.Mount(other+"/elsewhere", filepath.Join(top, "file"), "", unix.MS_BIND, ""),
			os.Chown(filepath.Join(top, "a/b"), anyUID+1, 0),
		)
		finds, unseen, end := walkOf(t, under(top))
		var want []string
		for _, name := range []string{"-rf", "a/b/c/x", "a/y1", "a/y2", "bad\xff", "new\nline"} {
			want = append(want, filepath.Join(top, name))
		}
		expect.True(t, slices.Equal(finds, want) && len(unseen) == 0 && end.Error == "" && end.Entries == 11,
			"%q, %q, %+v", finds, unseen, end)
		// The same files on a second mount are not walked again, nor is one that is hidden.
		finds, _, _ = walkOf(t, under(other, top+"/mount", top+"/file"))
		expect.True(t, len(finds) == 1, "of one file system that is mounted twice: %q", finds)
	})
}

// TestManyDirectories: of a directory with more names than are held, all are walked.
func TestManyDirectories(t *testing.T) {
	needsRoot(t)
	top := t.TempDir()
	const many = 1000
	inMounts(t, func() {
		defer mounted(t, top)()
		for i := range many {
			owned(t, fmt.Sprintf("%s/%d/x", top, i))
		}
		finds, unseen, end := walkOf(t, under(top))
		expect.True(t, len(slices.Compact(finds)) == many && len(unseen) == 0 && end.Error == "",
			"%d of %d directories, %q, %+v", len(finds), many, unseen, end)
	})
}

// TestSaysWhatItLeavesOut: a walk names what is too deep, a file system that is not local, and where
// its time was over.
func TestSaysWhatItLeavesOut(t *testing.T) {
	needsRoot(t)
	top := t.TempDir()
	inMounts(t, func() {
		defer mounted(t, top)()
		owned(t, top+strings.Repeat("/d", 63)+"/seen")
		owned(t, top+strings.Repeat("/d", 64)+"/unseen")
		finds, unseen, _ := walkOf(t, under(top, "/proc"))
		if len(finds) != 1 || len(unseen) != 2 || !strings.HasPrefix(unseen[0], "/proc: proc: ") ||
			!strings.HasSuffix(unseen[1], "below 64 directories") {
			t.Errorf("%q, %q", finds, unseen)
		}
		late := under(top)
		late.For = 0
		finds, unseen, end := walkOf(t, late)
		if len(finds) > 0 || len(unseen) != 1 || !strings.HasPrefix(unseen[0], top+": the time is over") ||
			end.Entries != 1 {
			t.Errorf("without time: %q, %q, %+v", finds, unseen, end)
		}
	})
}

// TestNobodyReads: a walk whose lines nobody reads ends.
func TestNobodyReads(t *testing.T) {
	needsRoot(t)
	top := t.TempDir()
	inMounts(t, func() {
		defer mounted(t, top)()
		owned(t, top+"/a")
		owned(t, top+"/b")
		mounts, err := sys.ReadMounts("/proc/thread-self/mountinfo")
		check(t, err)
		end := newWalk(under(top), func(chat.StrayLine) error { return unix.EPIPE }).all(mounts)
		expect.True(t, end.Entries == 2 && strings.Contains(end.Error, "cannot report a file: broken pipe"),
			"%+v", end)
	})
}

// TestRenames: directories that are moved and replaced by links while a walk is under way lead it
// nowhere else.
func TestRenames(t *testing.T) {
	needsRoot(t)
	top, other := t.TempDir(), t.TempDir()
	inMounts(t, func() {
		defer mounted(t, top)()
		defer mounted(t, other)()
		owned(t, other+"/bait/x")
		owned(t, top+"/a/bait/y")
		check(t, os.MkdirAll(top+"/b", 0o700), os.Symlink(other+"/bait", top+"/b/bait"))
		a, err := unix.Open(top+"/a", unix.O_PATH, 0)
		check(t, err)
		b, err := unix.Open(top+"/b", unix.O_PATH, 0)
		check(t, err)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(a, "bait", b, "bait", unix.RENAME_EXCHANGE)
				}
			}
		}()
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			finds, _, _ := walkOf(t, under(top))
			for _, path := range finds {
				expect.True(t, !strings.HasSuffix(path, "/x"), "a link led it to %s", path)
			}
		}
		close(stop)
		<-stopped
	})
}

// TestWaitsForNoServer: a FUSE file system that never answers is mounted on a directory and on a
// file; a walk enters neither and waits for neither.
func TestWaitsForNoServer(t *testing.T) {
	needsRoot(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("SKIPPED: needs /dev/fuse")
	}
	top := t.TempDir()
	inMounts(t, func() {
		defer mounted(t, top)()
		for _, name := range []string{"a", "dir/hidden", "file", "z/y"} {
			owned(t, filepath.Join(top, name))
		}
		for name, kind := range map[string]int{"dir": unix.S_IFDIR, "file": unix.S_IFREG} {
			fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
			check(t, err)
			hangs := time.AfterFunc(time.Minute, func() { _ = unix.Close(fuse) }) // ends the waiting
			defer func() {
				if hangs.Stop() {
					_ = unix.Close(fuse)
				} else {
					t.Error("the walk waited for a server")
				}
			}()
			options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other", fuse, kind)
			check(t, unix.Mount("hangs", filepath.Join(top, name), "fuse", 0, options))
		}
		finds, _, end := walkOf(t, under(top))
		expect.True(t, slices.Equal(finds, []string{top + "/a", top + "/z/y"}),
			"found %q, %+v", finds, end)
	})
}
