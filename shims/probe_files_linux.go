package shims

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/landlock"
	"golang.org/x/sys/unix"
)

// probeName is the name of the directory that probes make and remove.
const probeName = ".chatd-probe"

func probeHome(home string) *finding {
	f := &finding{by: "mode 0700"}
	var st unix.Stat_t
	if err := unix.Stat(home, &st); err != nil {
		f.expect(false, "stat %s: %v", home, err)
		return f
	}
	f.expect(int(st.Uid) == os.Getuid() && st.Mode&0o077 == 0, "%s belongs to uid %d, mode %04o", home,
		st.Uid, st.Mode&0o7777)
	err := unix.Mkdir(filepath.Join(home, probeName), 0o700)
	f.expect(err == nil, "mkdir in it: %s", outcome(err))
	if err == nil {
		err = unix.Rmdir(filepath.Join(home, probeName))
		f.expect(err == nil, "rmdir in it: %s", outcome(err))
	}
	refusesMkdir(f, filepath.Dir(home))
	return f
}

// homeFix returns the remedy for a weak home. The parents of a home below /tmp are made again in
// the session's own /tmp, where they belong to the chat.
func homeFix(home string) string {
	for _, dir := range []string{"/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(home, dir) {
			return "move run and homes out of " + dir + ": each session has a directory of its own there"
		}
	}
	return "chown the home to the chat and chmod it 0700"
}

// refusesMkdir expects mkdir(2) to fail in dir, with one of some errors if there are any, and removes
// the directory if it does not.
func refusesMkdir(f *finding, dir string, with ...error) {
	p := filepath.Join(dir, probeName)
	err := unix.Mkdir(p, 0o700)
	f.expect(err != nil && err != unix.EEXIST && (len(with) == 0 || slices.Contains(with, err)),
		"mkdir %s: %s", p, outcome(err))
	if err == nil {
		err = unix.Rmdir(p)
		f.expect(err == nil, "rmdir %s: %s", p, outcome(err))
	}
}

func probeTmp() *finding {
	f := &finding{by: "own directories and tmpfs"}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			f.expect(false, "stat %s: %v", dir, err)
			continue
		}
		f.expect(int(st.Uid) == os.Getuid(), "%s belongs to uid %d", dir, st.Uid)
	}
	var fs unix.Statfs_t
	err := unix.Statfs("/dev/shm", &fs)
	const max = 1 << 30
	size := uint64(fs.Blocks) * uint64(fs.Bsize)
	f.expect(err == nil && fs.Type == unix.TMPFS_MAGIC && size <= max, "/dev/shm has %d bytes", size)
	return f
}

// probeProc looks for a process of another user. In a pid namespace every process is the chat's.
func probeProc(outside int, counters bool) *finding {
	f := &finding{by: "pid namespace"}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		f.expect(false, "list /proc: %v", err)
		return f
	}
	own, others := 0, 0
	for _, e := range entries {
		var st unix.Stat_t
		_, err := strconv.Atoi(e.Name())
		switch {
		case err != nil || unix.Stat("/proc/"+e.Name(), &st) != nil:
		case int(st.Uid) == os.Getuid():
			own++
		default:
			others++
		}
	}
	f.expect(others == 0, "/proc shows %d processes of its own and %d of others", own, others)
	f.expect(own > 0, "/proc shows this process")
	if outside > 0 {
		err := unix.Kill(outside, 0)
		f.expect(err == unix.ESRCH, "signal 0 to process %d outside: %s", outside, outcome(err))
	}
	if counters {
		probeCounters(f)
	}
	return f
}

// neverSeen exists on every host and in no session.
var neverSeen = []string{"/etc/shadow", "/root", "/sys/kernel", "/var/lib"}

// probeMounts tries to see paths that the view leaves out, and to make a directory where the file
// system must be read-only. The kernel returns EROFS before it checks modes, so any other error is
// not the read-only mount's.
func probeMounts(s plan.ProbeSpec) *finding {
	f := &finding{by: "bubblewrap, overlays"}
	for _, p := range append(append([]string{}, neverSeen...), s.Hidden...) {
		var st unix.Stat_t
		err := unix.Lstat(p, &st)
		f.expect(err == unix.ENOENT || err == unix.ENOTDIR, "stat %s: %s", p, outcome(err))
	}
	for _, dir := range []string{"/", "/usr", "/etc", "/dev", "/run", plan.InsideDir} {
		refusesMkdir(f, dir, unix.EROFS)
	}
	for _, p := range s.Locked {
		err := lockHere(p)
		f.expect(err == nil, "lock %s, which is locked outside: %s", p, outcome(err))
	}
	if len(s.Locked) > 0 {
		probeTerminals(f)
	}
	return f
}

// lockHere takes a lock and releases it. A lock belongs to the inode (flock(2)): no process
// outside can hold one on an inode of the session's own.
func lockHere(p string) error {
	fd, err := unix.Open(p, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
}

// probeTerminals opens terminals until there are no more.
func probeTerminals(f *finding) {
	const max = 256
	var open []int
	var err error
	for len(open) < max && err == nil {
		var fd int
		if fd, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err == nil {
			open = append(open, fd)
		}
	}
	for _, fd := range open {
		unix.Close(fd)
	}
	f.expect(len(open) > 0 && err == unix.ENOSPC, "open %d terminals: %s", len(open), outcome(err))
}

// hostCounters show activity of the whole host, and no program needs them.
var hostCounters = []string{"/proc/vmstat", "/proc/interrupts", "/proc/sys/fs/file-nr",
	"/proc/sys/kernel/pty/nr"}

func probeCounters(f *finding) {
	for _, p := range hostCounters {
		b, err := os.ReadFile(p)
		f.expect(err != nil || len(b) == 0, "read %s: %d bytes", p, len(b))
	}
}

// probeLandlock tries two things that only Landlock refuses: to list the root directory, and to
// open a file of its own in /proc for writing.
func probeLandlock() *finding {
	f := &finding{by: "Landlock ABI " + strconv.Itoa(landlock.ABI()), weaker: landlock.ABI() < 2}
	for _, try := range []struct {
		what, name string
		flags      int
	}{
		{"list /", "/", unix.O_RDONLY | unix.O_DIRECTORY},
		{"open " + oomFile + " to write", oomFile, unix.O_WRONLY},
	} {
		fd, err := unix.Open(try.name, try.flags|unix.O_CLOEXEC, 0)
		f.expect(err == unix.EACCES, "%s: %s", try.what, outcome(err))
		if err == nil {
			unix.Close(fd)
		}
	}
	return f
}

// probePath checks each directory of PATH, and which program sudo finds there.
func probePath() *finding {
	f := &finding{by: "shims, then links"}
	dirs := strings.Split(os.Getenv("PATH"), ":")
	f.expect(dirs[0] == plan.InsideShims, "PATH begins with %s", dirs[0])
	for _, dir := range dirs {
		f.expect(filepath.IsAbs(dir), "PATH has %q", dir)
		refusesMkdir(f, dir)
	}
	target, err := os.Readlink(filepath.Join(dirs[0], "sudo"))
	f.expect(err == nil && target == plan.InsideShim, "sudo in it leads to %q", target)
	return f
}
