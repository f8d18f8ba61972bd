package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Room is the network namespace of a process, for as long as the namespace lives. It
// keeps the namespace alive until Close.
type Room struct {
	pid  int
	stat *os.File
	buf  [1024]byte
}

// Open opens the network namespace of a process. The caller makes sure afterwards that
// the process still is the one that was meant.
func Open(pid int) (*Room, error) {
	stat, err := os.Open(fmt.Sprintf("/proc/%d/net/sockstat", pid))
	if err != nil {
		return nil, fmt.Errorf("cannot count the sockets of process %d: %w", pid, err)
	}
	return &Room{pid: pid, stat: stat}, nil
}

// Close lets go of the namespace.
func (r *Room) Close() error { return r.stat.Close() }

// Count is what the kernel counts without a list.
type Count struct {
	// Sockets is how many the namespace has, of every family.
	Sockets int
	// Pages is what TCP and UDP hold on the whole host.
	Pages int
}

// Count reads how many sockets there are, in some microseconds.
func (r *Room) Count() (Count, error) {
	n, err := r.stat.ReadAt(r.buf[:], 0)
	if n == 0 && err != nil {
		return Count{}, fmt.Errorf("cannot count the sockets of process %d: %w", r.pid, err)
	}
	return parseCount(r.buf[:n])
}

// parseCount reads proc_net(5)'s sockstat: "sockets: used N", "TCP: inuse N … mem N" and
// "UDP: inuse N mem N".
func parseCount(text []byte) (Count, error) {
	c := Count{Sockets: -1}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(": "))
		f := bytes.Fields(rest)
		for i := 0; i+1 < len(f); i += 2 {
			n, err := strconv.Atoi(string(f[i+1]))
			switch {
			case err != nil || n < 0:
				return Count{}, fmt.Errorf("cannot read the count of sockets %q", line)
			case string(name) == "sockets" && string(f[i]) == "used":
				c.Sockets = n
			case (string(name) == "TCP" || string(name) == "UDP") && string(f[i]) == "mem":
				c.Pages += n
			}
		}
	}
	if c.Sockets < 0 {
		return Count{}, fmt.Errorf("cannot read the count of sockets in %.100q: it is not there", text)
	}
	return c, nil
}

// Usage is what sockets hold.
type Usage struct {
	Sockets int
	Bytes   uint64
}

// Found is what a look found.
type Found struct {
	// All is every socket of the namespace, ByUID what each uid made.
	All   Usage
	ByUID map[uint32]Usage
	// Unlisted is how many sockets no list shows. They are not in All.
	Unlisted int
	// Inodes are the listed sockets' own numbers, as in /proc/PID/fd.
	Inodes map[uint32]bool
}

// socketCost is what a socket takes beside what waits in it, in bytes: the structures of
// one that waits to be accepted are charged to nobody.
const socketCost = 4 << 10

// Look lists every socket of the namespace.
func (r *Room) Look() (Found, error) {
	fd, err := r.diag()
	if err != nil {
		return Found{}, err
	}
	defer unix.Close(fd)
	var all []entry
	buf := make([]byte, 64<<10)
	for _, k := range kinds {
		err := dump(fd, k, buf, func(e entry) { all = append(all, e) })
		if err != nil && !(k.family == unix.AF_NETLINK && errors.Is(err, unix.ENOENT)) { // a kernel without its list
			return Found{}, err
		}
	}
	count, err := r.Count()
	if err != nil {
		return Found{}, err
	}
	return sum(all, count.Sockets), nil
}

// diag is a socket to ask for sockets by, in the namespace.
func (r *Room) diag() (fd int, err error) {
	err = onThread(func() (same bool, err error) {
		return r.within(func() (err error) {
			fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
			return err
		})
	})
	if err != nil {
		return -1, fmt.Errorf("cannot ask for the sockets of process %d: %w", r.pid, err)
	}
	return fd, nil
}

// onThread calls f on a thread of its own, which is thrown away unless f says that it is
// the same as before. It is never the main thread, which cannot be thrown away and is
// what /proc/PID shows of the whole daemon.
func onThread(f func() (same bool, err error)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- onThread(f)
			runtime.UnlockOSThread()
			return
		}
		same, err := f()
		if same {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// within calls f in the namespace. The thread is its old self afterwards if same is true.
func (r *Room) within(f func() error) (same bool, err error) {
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, err
	}
	defer unix.Close(own)
	theirs, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", r.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true, err
	}
	defer unix.Close(theirs)
	if err := unix.Setns(theirs, unix.CLONE_NEWNET); err != nil {
		return true, err
	}
	err = f()
	return unix.Setns(own, unix.CLONE_NEWNET) == nil, err
}

// sum adds up. A connection that nobody has accepted has no uid; it is of whoever listens
// on its port.
func sum(all []entry, used int) Found {
	found := Found{ByUID: map[uint32]Usage{}, Inodes: map[uint32]bool{}}
	listeners := map[uint16]uint32{}
	for _, e := range all {
		if e.listen {
			listeners[e.port] = e.uid
		}
	}
	for _, e := range all {
		if !e.counted {
			continue
		}
		if uid, ok := listeners[e.port]; ok && e.inode == 0 && e.port != 0 {
			e.uid = uid
		}
		found.All.add(e)
		h := found.ByUID[e.uid]
		h.add(e)
		found.ByUID[e.uid] = h
		found.Inodes[e.inode] = true
	}
	found.Unlisted = max(0, used-found.All.Sockets)
	return found
}

func (h *Usage) add(e entry) {
	h.Sockets++
	h.Bytes += e.memory + socketCost
}
