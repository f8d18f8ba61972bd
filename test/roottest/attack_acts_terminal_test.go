package roottest

import (
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// terminalActs attack clients that look at the chat's terminal.
var terminalActs = map[string]act{
	"flood-prompt": floodPrompt,
	"false-server": falseServer,
	"lend-stdout":  lendStdout,
	"keep-stdout":  keepStdout,
	"kill-named": func(a []string) (string, error) {
		return "", exec.Command("/usr/bin/pkill", "-"+a[0], "-x", a[1]).Run()
	},
}

// floodPrompt writes into the fifo by which the shell reports its prompt, until
// it takes no more, and says how many KiB it took.
func floodPrompt(a []string) (string, error) {
	fd, err := unix.Open(a[0], unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 64<<20)
	total := 0
	for err == nil {
		var n int
		n, err = unix.Write(fd, make([]byte, 4096))
		total += max(n, 0)
	}
	return strconv.Itoa(total >> 10), nil
}

// falseServer takes the place of the terminal's server: it ends the real one
// and answers everyone with a[1], or not at all.
func falseServer(a []string) (string, error) {
	signal.Ignore(unix.SIGHUP, unix.SIGTERM)
	aside := a[0] + ".false"
	l, err := net.Listen("unix", aside)
	if err != nil {
		return "", err
	}
	if err := exec.Command("/usr/bin/pkill", "-9", "-x", "tmux: server").Run(); err != nil {
		return "", err
	}
	if err := os.Rename(aside, a[0]); err != nil {
		return "", err
	}
	if err := os.WriteFile(a[1], nil, 0o600); err != nil {
		return "", err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		go func() {
			if len(a) > 2 {
				c.Write([]byte(a[2]))
			}
			time.Sleep(time.Hour)
			c.Close()
		}()
	}
}

// keepStdout waits on the socket a[0] for another process's stdout and keeps it; it creates the
// file a[1] once it listens.
func keepStdout(a []string) (string, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: a[0], Net: "unix"})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(a[1], nil, 0o600); err != nil {
		return "", err
	}
	c, err := l.AcceptUnix()
	if err != nil {
		return "", err
	}
	oob := make([]byte, 64)
	if _, _, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob); err != nil {
		return "", err
	}
	if err := os.WriteFile(a[1]+".got", nil, 0o600); err != nil {
		return "", err
	}
	time.Sleep(time.Hour)
	return "", nil
}

// lendStdout gives its stdout to the process behind the socket a[0].
func lendStdout(a []string) (string, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: a[0], Net: "unix"})
	if err != nil {
		return "", err
	}
	if _, _, err := c.WriteMsgUnix([]byte("x"), unix.UnixRights(1), nil); err != nil {
		return "", err
	}
	return "", awaitFile(a[1] + ".got")
}
