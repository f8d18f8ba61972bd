package sockets

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// room is the network namespace of a process, for as long as the namespace lives. It
// keeps the namespace alive until close.
type room struct {
	pid  int
	stat *os.File
	buf  [1024]byte
}

// open opens the network namespace of a process. The caller checks afterwards that pid is still
// the same process.
func open(pid int) (*room, error) {
	stat, err := os.Open(fmt.Sprintf("/proc/%d/net/sockstat", pid))
	if err != nil {
		return nil, fmt.Errorf("cannot count the sockets of process %d: %w", pid, err)
	}
	return &room{pid: pid, stat: stat}, nil
}

// close lets go of the namespace.
func (r *room) close() error { return r.stat.Close() }

// socketCount are the kernel's counts, which need no list.
type socketCount struct {
	// Sockets is how many the namespace has, of every family.
	Sockets int
	// Pages is what TCP and UDP hold on the whole host.
	Pages int
}

// count reads how many sockets there are, in some microseconds.
func (r *room) count() (socketCount, error) {
	n, err := r.stat.ReadAt(r.buf[:], 0)
	if n == 0 && err != nil {
		return socketCount{}, fmt.Errorf("cannot count the sockets of process %d: %w", r.pid, err)
	}
	return parseCount(r.buf[:n])
}

// parseCount reads proc_net(5)'s sockstat: "sockets: used N", "TCP: inuse N … mem N" and
// "UDP: inuse N mem N".
func parseCount(text []byte) (socketCount, error) {
	c := socketCount{Sockets: -1}
	for line := range bytes.Lines(text) {
		name, rest, _ := bytes.Cut(line, []byte(": "))
		f := bytes.Fields(rest)
		for i := 0; i+1 < len(f); i += 2 {
			n, err := strconv.Atoi(string(f[i+1]))
			switch {
			case err != nil || n < 0:
				return socketCount{}, fmt.Errorf("cannot read the count of sockets %q", line)
			case string(name) == "sockets" && string(f[i]) == "used":
				c.Sockets = n
			case (string(name) == "TCP" || string(name) == "UDP") && string(f[i]) == "mem":
				c.Pages += n
			}
		}
	}
	if c.Sockets < 0 {
		return socketCount{}, fmt.Errorf("cannot read the count of sockets in %.100q: it is not there", text)
	}
	return c, nil
}

// usage is what sockets hold.
type usage struct {
	Sockets int
	Bytes   uint64
}

// listing is the result of a look.
type listing struct {
	// All is every socket of the namespace, ByUID what each uid made.
	All   usage
	ByUID map[uint32]usage
	// Unlisted is how many sockets no list shows. They are not in All.
	Unlisted int
	// Inodes are the listed sockets' own numbers, as in /proc/PID/fd.
	Inodes map[uint32]bool
}

// socketCost is the size of a socket's own structures, in bytes: those of a socket that waits to
// be accepted are charged to no cgroup.
const socketCost = 4 << 10

// look lists every socket of the namespace.
func (r *room) look() (listing, error) {
	fd, err := r.diag()
	if err != nil {
		return listing{}, err
	}
	defer unix.Close(fd)
	var all []entry
	buf := make([]byte, 64<<10)
	for _, k := range kinds {
		err := dump(fd, k, buf, func(e entry) { all = append(all, e) })
		if err != nil &&
			!(k.family == unix.AF_NETLINK && errors.Is(err, unix.ENOENT)) { // a kernel without its list
			return listing{}, err
		}
	}
	count, err := r.count()
	if err != nil {
		return listing{}, err
	}
	return sum(all, count.Sockets), nil
}

// diag is a socket to ask for sockets by, in the namespace.
func (r *room) diag() (fd int, err error) {
	err = sys.OnThread(func() error {
		if err := r.join(); err != nil {
			return err
		}
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("cannot ask for the sockets of process %d: %w", r.pid, err)
	}
	return fd, nil
}

// join puts the calling thread, which ends afterwards, into the namespace.
func (r *room) join() error {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", r.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	return unix.Setns(ns, unix.CLONE_NEWNET)
}

// sum adds up the entries. A connection that was not accepted has no uid, and counts for the uid
// that listens on its port.
func sum(all []entry, used int) listing {
	found := listing{ByUID: map[uint32]usage{}, Inodes: map[uint32]bool{}}
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

func (h *usage) add(e entry) {
	h.Sockets++
	h.Bytes += e.memory + socketCost
}
