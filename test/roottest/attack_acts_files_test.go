package roottest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// fileActs are what an attacker does to paths.
var fileActs = map[string]act{
	"read": func(a []string) (string, error) {
		f, err := os.OpenFile(a[0], os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return "", err
		}
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
	fd, err := unix.Open(a[0], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a[1], unix.AT_SYMLINK_FOLLOW)
}

// openByHandle opens a file by its number in the file system, past every
// directory (open_by_handle_at(2)): "Shocker", which read the host's files from
// containers.
func openByHandle(a []string) (string, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
	if err != nil {
		return "", err
	}
	dir, err := unix.Open(filepath.Dir(a[0]), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	return closing(unix.OpenByHandleAt(dir, h, unix.O_RDONLY|unix.O_CLOEXEC))
}

// fill writes to a file until it may not go on, at most a[1] bytes, says how
// far it came in MiB, and removes the file.
func fill(a []string) (string, error) {
	f, err := os.Create(filepath.Join(a[0], "fill"))
	if err != nil {
		return "", err
	}
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
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
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
		if err != nil {
			return "", err
		}
	}
	return strings.Join(found, " "), nil
}

// watchOpens watches a file that all chats share for opens (inotify(7)), and reports whether there
// was one until the file a[2] existed.
func watchOpens(a []string) (string, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, a[0], unix.IN_OPEN|unix.IN_ACCESS); err != nil {
		return "", err
	}
	if err := os.WriteFile(a[1], nil, 0o600); err != nil {
		return "", err
	}
	if err := awaitFile(a[2]); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	_, err = unix.Read(fd, b)
	return "seen", err
}
