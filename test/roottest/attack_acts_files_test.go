package roottest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileActs are what an attacker does to paths.
var fileActs = map[string]act{
	"read": func(a []string) (string, error) {
		f := value(os.OpenFile(a[0], os.O_RDONLY|unix.O_NONBLOCK, 0))
		defer f.Close()
		b := make([]byte, 200)
		n, err := f.Read(b)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return strconv.QuoteToASCII(string(b[:n])), err
	},
	"list": func(a []string) (string, error) {
		entries, err := os.ReadDir(a[0])
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " "), err
	},
	"stat":   func(a []string) (string, error) { var st unix.Stat_t; return "", unix.Stat(a[0], &st) },
	"access": func(a []string) (string, error) { return "", unix.Access(a[0], unix.R_OK) },
	// open-write opens without making or cutting anything.
	"open-write": func(a []string) (string, error) {
		return closing(unix.Open(a[0], unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	},
	"write": func(a []string) (string, error) {
		return "", os.WriteFile(a[0], []byte(strings.Join(a[1:], " ")), 0o644)
	},
	"mkdir":      func(a []string) (string, error) { return "", unix.Mkdir(a[0], 0o700) },
	"link":       func(a []string) (string, error) { return "", unix.Link(a[0], a[1]) },
	"symlink":    func(a []string) (string, error) { return "", unix.Symlink(a[0], a[1]) },
	"rename":     func(a []string) (string, error) { return "", unix.Rename(a[0], a[1]) },
	"unlink":     func(a []string) (string, error) { return "", unix.Unlink(a[0]) },
	"chown":      func(a []string) (string, error) { return "", unix.Chown(a[0], number(a[1]), -1) },
	"chmod":      func(a []string) (string, error) { return "", unix.Chmod(a[0], uint32(number(a[1]))) },
	"link-fd":    linkFD,
	"handle":     openByHandle,
	"fill":       fill,
	"read-write": readWriteMounts,
	"writable":   writable,
	"watch":      watchOpens,
}

// linkFD links a file by descriptor, which asks for no right to its directory.
func linkFD(a []string) (string, error) {
	fd := value(unix.Open(a[0], unix.O_PATH|unix.O_CLOEXEC, 0))
	defer unix.Close(fd)
	return "", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a[1], unix.AT_SYMLINK_FOLLOW)
}

// openByHandle opens a file by its number in the file system, past every
// directory (open_by_handle_at(2)): "Shocker", which read the host's files from
// containers.
func openByHandle(a []string) (string, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
	check(err)
	dir := value(unix.Open(filepath.Dir(a[0]), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))
	defer unix.Close(dir)
	return closing(unix.OpenByHandleAt(dir, h, unix.O_RDONLY|unix.O_CLOEXEC))
}

// fill writes to a file until it may not go on, at most a[1] bytes, says how
// far it came in MiB, and removes the file.
func fill(a []string) (string, error) {
	f := value(os.Create(filepath.Join(a[0], "fill")))
	defer os.Remove(f.Name())
	defer f.Close()
	block, total := make([]byte, 64<<10), 0
	for total < number(a[1]) {
		n, err := f.Write(block)
		total += n
		if err != nil {
			return "", fmt.Errorf("%w", err)
		}
	}
	return strconv.Itoa(total >> 20), nil
}

// readWriteMounts lists the mount points that are not read-only, without those
// that are one device or file.
func readWriteMounts([]string) (string, error) {
	text := value(os.ReadFile("/proc/self/mountinfo"))
	var points []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 5 && strings.HasPrefix(f[5], "rw") {
			points = append(points, f[4])
		}
	}
	return strings.Join(points, " "), nil
}

// writable tries to open for writing every file below the given directories,
// and to make a directory in each of theirs, and lists where it could.
func writable(roots []string) (string, error) {
	var found []string
	try := func(p string, isDir bool) {
		if !isDir {
			fd, err := unix.Open(p, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
			}
			if err == nil || err == unix.ENXIO { // ENXIO: a fifo without a reader
				found = append(found, p)
			}
			return
		}
		made := filepath.Join(p, ".chatd-attack")
		if unix.Mkdir(made, 0o700) == nil {
			unix.Rmdir(made)
			found = append(found, p+"/")
		}
	}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
			if d == nil {
				return nil
			}
			try(p, d.IsDir())
			if root == "/usr" || p == "/" && root == p {
				return fs.SkipAll // read-only as a whole: see the mounts
			}
			return nil
		})
		check(err)
	}
	return strings.Join(found, " "), nil
}

// watchOpens watches a file that all chats share for opens (inotify(7)), and reports whether there
// was one until the file a[2] existed.
func watchOpens(a []string) (string, error) {
	fd := value(unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK))
	defer unix.Close(fd)
	value(unix.InotifyAddWatch(fd, a[0], unix.IN_OPEN|unix.IN_ACCESS))
	check(os.WriteFile(a[1], nil, 0o600))
	check(awaitFile(a[2]))
	b := make([]byte, 4096)
	value(unix.Read(fd, b))
	return "seen", nil
}

// sharedActs move bytes through what two chats may only read.
var sharedActs = map[string]act{
	"say-by-opens": sayByOpens, "hear-opens": hearOpens,
	"say-by-locks": sayByLocks, "hear-locks": hearLocks,
	"hold-flock": holdFlock, "flock": tryFlock, "lease": tryLease,
	"count-terminals": func(a []string) (string, error) {
		return fmt.Sprint(openTerminals(number(a[0]))), nil
	},
	"dial-fifo": dialFIFO,
}

// sixteen are files of a directory, one for each value of four bits. No two are one file under
// two names, as add-apt-repository and apt-add-repository of a host are: a watch is of the inode.
func sixteen(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	var names []string
	seen := map[uint64]bool{}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		var st unix.Stat_t
		if unix.Stat(name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || seen[st.Ino] || unix.Access(name, unix.R_OK) != nil {
			continue
		}
		seen[st.Ino] = true
		names = append(names, name)
	}
	sort.Strings(names)
	if err == nil && len(names) < 16 {
		err = fmt.Errorf("%d files in %s: want 16", len(names), dir)
	}
	return names[:min(16, len(names))], err
}

// sayByOpens opens one file of a[0] for each half byte of a[1].
func sayByOpens(a []string) (string, error) {
	files := value(sixteen(a[0]))
	for _, b := range []byte(a[1]) {
		for _, half := range []byte{b >> 4, b & 15} {
			fd := value(unix.Open(files[half], unix.O_RDONLY|unix.O_CLOEXEC, 0))
			unix.Close(fd)
		}
	}
	return "", nil
}

// hearOpens watches the files of a[0] from when a[1] is made until a[2] is there, and
// tells the bytes of what it heard.
func hearOpens(a []string) (string, error) {
	files := value(sixteen(a[0]))
	fd := value(unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK))
	defer unix.Close(fd)
	means := map[int32]byte{}
	for i, f := range files {
		w := value(unix.InotifyAddWatch(fd, f, unix.IN_OPEN))
		means[int32(w)] = byte(i)
	}
	check(os.WriteFile(a[1], nil, 0o600))
	check(awaitFile(a[2]))
	var halves []byte
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, b)
		if err != nil {
			break // nothing more
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; at += unix.SizeofInotifyEvent {
			halves = append(halves, means[int32(b[at])|int32(b[at+1])<<8])
		}
	}
	var said strings.Builder
	for i := 0; i+1 < len(halves); i += 2 {
		said.WriteByte(halves[i]<<4 | halves[i+1])
	}
	return said.String(), nil
}

// sayByLocks holds locks on the file a[0] (fcntl(2)), one byte of it for each bit of a[1],
// from when a[2] is made until a[3] is there. Seccomp refuses locks of open file
// descriptions.
func sayByLocks(a []string) (string, error) {
	f := value(os.Open(a[0]))
	defer f.Close()
	for i := range 8 * len(a[1]) {
		if a[1][i/8]>>(i%8)&1 == 0 {
			continue
		}
		l := unix.Flock_t{Type: unix.F_RDLCK, Start: int64(i), Len: 1}
		check(unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l))
	}
	check(os.WriteFile(a[2], nil, 0o600))
	return "", awaitFile(a[3])
}

// hearLocks asks for the lock that conflicts with each bit of a[1] bytes.
func hearLocks(a []string) (string, error) {
	f := value(os.Open(a[0]))
	defer f.Close()
	said := make([]byte, number(a[1]))
	for i := range 8 * len(said) {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i), Len: 1}
		check(unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l))
		if l.Type != unix.F_UNLCK {
			said[i/8] |= 1 << (i % 8)
		}
	}
	return strings.TrimRight(string(said), "\x00"), nil
}

// holdFlock holds a lock on a[0] from when a[1] is made until a[2] is there.
func holdFlock(a []string) (string, error) {
	f := value(os.Open(a[0]))
	defer f.Close()
	check(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	check(os.WriteFile(a[1], nil, 0o600))
	return "", awaitFile(a[2])
}

// tryFlock is "held" if another process has the lock.
func tryFlock(a []string) (string, error) {
	f := value(os.Open(a[0]))
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return "held", nil
	}
	return "free", nil
}

func tryLease(a []string) (string, error) {
	f := value(os.Open(a[0]))
	defer f.Close()
	value(unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK))
	return "", nil
}

// dialFIFO writes into a fifo that has a reader.
func dialFIFO(a []string) (string, error) {
	return closing(unix.Open(a[0], unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
}

// openTerminals opens terminals until there are none, or n.
func openTerminals(n int) int {
	for opened := range n {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
			return opened
		}
	}
	return n
}
