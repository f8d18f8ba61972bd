package roottest

import (
	"fmt"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ipcActs are the ways round files: System V objects by key, POSIX ones by
// name, sockets. With the argument "make" the object is made, for anybody.
var ipcActs = map[string]act{
	"shm":            func(a []string) (string, error) { return sysV(unix.SYS_SHMGET, number(a[0]), 4096, a[1:]) },
	"sem":            func(a []string) (string, error) { return sysV(unix.SYS_SEMGET, number(a[0]), 1, a[1:]) },
	"msg":            func(a []string) (string, error) { return sysV(unix.SYS_MSGGET, number(a[0]), -1, a[1:]) },
	"mq":             messageQueue,
	"dial-abstract":  func(a []string) (string, error) { return dialUnix("@" + a[0]) },
	"dial-unix":      func(a []string) (string, error) { return dialUnix(a[0]) },
	"serve-abstract": func(a []string) (string, error) { return serve("unix", "@"+a[0], a[1]) },
	"serve-unix":     func(a []string) (string, error) { return serve("unix", a[0], a[1]) },
	"serve":          func(a []string) (string, error) { return serve(a[0], a[1], a[2]) },
}

func sysV(call uintptr, key, size int, rest []string) (string, error) {
	flags := 0
	if len(rest) > 0 {
		flags = unix.IPC_CREAT | 0o666
	}
	args := [3]uintptr{uintptr(key), uintptr(size), uintptr(flags)}
	if size < 0 {
		args = [3]uintptr{uintptr(key), uintptr(flags), 0}
	}
	id, _, e := unix.Syscall(call, args[0], args[1], args[2])
	return fmt.Sprint(id), errno(e)
}

func messageQueue(a []string) (string, error) {
	flags := unix.O_RDWR
	if len(a) > 1 {
		flags |= unix.O_CREAT
	}
	// The kernel's default queue takes more than a chat's RLIMIT_MSGQUEUE.
	attr := [8]int64{0, 1, 64}
	name := append([]byte(a[0]), 0)
	fd, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), uintptr(flags), 0o666, uintptr(unsafe.Pointer(&attr[0])), 0, 0)
	if len(a) > 2 {
		unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&name[0])), 0, 0)
	}
	return closing(int(fd), errno(e))
}

func dialUnix(name string) (string, error) {
	c, err := net.DialTimeout("unix", name, dialTime)
	if err != nil {
		return "", err
	}
	return hear(c)
}

// secretOfServer is what a server sends to every client that reaches it.
const secretOfServer = "the-secret-of-this-server"

// hear reads what a server sends to each client.
func hear(c net.Conn) (string, error) {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(dialTime)); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// serve sends its secret to every client, forever. It creates the file ready once it listens.
func serve(network, addr, ready string) (string, error) {
	l, err := net.Listen(network, addr)
	if err != nil {
		return "", err
	}
	// Whole or not there: it is read as soon as it is seen.
	if err := os.WriteFile(ready+".new", []byte(l.Addr().String()), 0o600); err != nil {
		return "", err
	}
	if err := os.Rename(ready+".new", ready); err != nil {
		return "", err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		// It stays open for a while: a packet after close has no owner, and is
		// checked otherwise.
		go func() {
			c.Write([]byte(secretOfServer))
			time.Sleep(15 * time.Second)
			c.Close()
		}()
	}
}
