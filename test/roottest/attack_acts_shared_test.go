package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

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
	files, err := sixteen(a[0])
	if err != nil {
		return "", err
	}
	for _, b := range []byte(a[1]) {
		for _, half := range []byte{b >> 4, b & 15} {
			fd, err := unix.Open(files[half], unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return "", err
			}
			unix.Close(fd)
		}
	}
	return "", nil
}

// hearOpens watches the files of a[0] from when a[1] is made until a[2] is there, and
// tells the bytes of what it heard.
func hearOpens(a []string) (string, error) {
	files, err := sixteen(a[0])
	if err != nil {
		return "", err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	value := map[int32]byte{}
	for i, f := range files {
		w, err := unix.InotifyAddWatch(fd, f, unix.IN_OPEN)
		if err != nil {
			return "", err
		}
		value[int32(w)] = byte(i)
	}
	if err := os.WriteFile(a[1], nil, 0o600); err != nil {
		return "", err
	}
	if err := awaitFile(a[2]); err != nil {
		return "", err
	}
	var halves []byte
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, b)
		if err != nil {
			break // nothing more
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; at += unix.SizeofInotifyEvent {
			halves = append(halves, value[int32(b[at])|int32(b[at+1])<<8])
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
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	for i := range 8 * len(a[1]) {
		if a[1][i/8]>>(i%8)&1 == 0 {
			continue
		}
		l := unix.Flock_t{Type: unix.F_RDLCK, Start: int64(i), Len: 1}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(a[2], nil, 0o600); err != nil {
		return "", err
	}
	return "", awaitFile(a[3])
}

// hearLocks asks for the lock that conflicts with each bit of a[1] bytes.
func hearLocks(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	said := make([]byte, number(a[1]))
	for i := range 8 * len(said) {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i), Len: 1}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
			return "", err
		}
		if l.Type != unix.F_UNLCK {
			said[i/8] |= 1 << (i % 8)
		}
	}
	return strings.TrimRight(string(said), "\x00"), nil
}

// holdFlock holds a lock on a[0] from when a[1] is made until a[2] is there.
func holdFlock(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", err
	}
	if err := os.WriteFile(a[1], nil, 0o600); err != nil {
		return "", err
	}
	return "", awaitFile(a[2])
}

// tryFlock is "held" if another process has the lock.
func tryFlock(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK {
		return "held", nil
	}
	return "free", nil
}

func tryLease(a []string) (string, error) {
	f, err := os.Open(a[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	return "", err
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
