package roottest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attackName is the name under which this test binary, put into a chat's home,
// is the attacker: "attack ACT ARGUMENT…" tries one thing and prints how it ended.
const attackName = "attack"

// act is one thing to try. What it learned is the string, and nil means that it
// succeeded.
type act func(args []string) (string, error)

// acts are all that an attacker can try, by name.
var acts = map[string]act{}

func addActs(more map[string]act) {
	for name, a := range more {
		if acts[name] != nil {
			panic("two acts are named " + name) // one would not be tried
		}
		acts[name] = a
	}
}

func init() {
	if filepath.Base(os.Args[0]) != attackName {
		return
	}
	addActs(fileActs)
	addActs(processActs)
	addActs(ipcActs)
	addActs(callActs)
	addActs(x86Acts)
	addActs(credentialActs)
	addActs(networkActs)
	addActs(nameActs)
	addActs(benchActs)
	addActs(proxyActs)
	addActs(greedyActs)
	addActs(terminalActs)
	addActs(toolActs)
	addActs(socketActs)
	addActs(sharedActs)
	addActs(secretActs)
	addActs(holdActs)
	fmt.Println(attempt(os.Args[1:]))
	os.Exit(0)
}

// attempt runs one act and words its end: "ok", "ok WHAT", the name of the
// kernel's error, or the text of another.
func attempt(args []string) string {
	if len(args) == 0 || acts[args[0]] == nil {
		return fmt.Sprintf("no such act: %q", args)
	}
	got, err := caught(acts[args[0]], args[1:])
	if err != nil {
		return errorName(err)
	}
	return strings.TrimSpace("ok " + got)
}

// caught does an act. An error that it met on the way ends it, as [check] has it.
func caught(a act, args []string) (got string, err error) {
	defer func() {
		switch met := recover().(type) {
		case nil:
		case actError:
			err = met
		default:
			panic(met)
		}
	}()
	return a(args)
}

// actError is the error that ends an act.
type actError struct{ error }

func (e actError) Unwrap() error { return e.error }

// check ends an act with an error, in the goroutine of its own.
func check(err error) {
	if err != nil {
		panic(actError{err})
	}
}

// value checks the error, and returns the value.
func value[V any](v V, err error) V {
	check(err)
	return v
}

func errorName(err error) string {
	var e syscall.Errno
	var n net.Error
	switch {
	case errors.As(err, &e):
		if name := unix.ErrnoName(e); name != "" {
			return name
		}
		return fmt.Sprintf("errno %d", int(e))
	case errors.As(err, &n) && n.Timeout():
		return "ETIMEDOUT"
	}
	return err.Error()
}

// number reads an argument; the callers are in this package, so a wrong one is a bug.
func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		panic(err)
	}
	return int(n)
}

// errno makes an error of a raw call's result.
func errno(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

// closing closes what an act got, which it had no use for.
func closing(fd int, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return "", unix.Close(fd)
}

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
	fd := value(unix.Open(a[0], unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0))
	defer unix.Close(fd)
	unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 64<<20)
	total := 0
	for {
		n, err := unix.Write(fd, make([]byte, 4096))
		if err != nil {
			return strconv.Itoa(total >> 10), nil
		}
		total += n
	}
}

// falseServer takes the place of the terminal's server: it ends the real one
// and answers everyone with a[1], or not at all.
func falseServer(a []string) (string, error) {
	signal.Ignore(unix.SIGHUP, unix.SIGTERM)
	aside := a[0] + ".false"
	l := value(net.Listen("unix", aside))
	check(exec.Command("/usr/bin/pkill", "-9", "-x", "tmux: server").Run())
	check(os.Rename(aside, a[0]))
	check(os.WriteFile(a[1], nil, 0o600))
	for {
		c := value(l.Accept())
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
	l := value(net.ListenUnix("unix", &net.UnixAddr{Name: a[0], Net: "unix"}))
	check(os.WriteFile(a[1], nil, 0o600))
	c := value(l.AcceptUnix())
	oob := make([]byte, 64)
	_, _, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	check(err)
	check(os.WriteFile(a[1]+".got", nil, 0o600))
	time.Sleep(time.Hour)
	return "", nil
}

// lendStdout gives its stdout to the process behind the socket a[0].
func lendStdout(a []string) (string, error) {
	c := value(net.DialUnix("unix", nil, &net.UnixAddr{Name: a[0], Net: "unix"}))
	_, _, err := c.WriteMsgUnix([]byte("x"), unix.UnixRights(1), nil)
	check(err)
	return "", awaitFile(a[1] + ".got")
}

// toolActs are what a chat would do to its file tool if it saw it: trace it, speak for it and stop
// it; and it changes what the tool looks at.
var toolActs = map[string]act{
	"speak": speakForTool,
	"stop": func(a []string) (string, error) {
		return "", onTools(a[0], func(pid int) { _ = unix.Kill(pid, unix.SIGSTOP) })
	},
	"end": func(a []string) (string, error) {
		return "", onTools(a[0], func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) })
	},
	"swap": swapNames,
}

// onTools waits for file tools, for ever, and does f to each it sees; the file ready
// is made at once, and ready.seen with the first tool.
func onTools(ready string, f func(pid int)) error {
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return err
	}
	for {
		found, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, name := range found {
			line, err := os.ReadFile(name)
			if err == nil && bytes.Contains(line, []byte("\x00filetool\x00")) {
				_ = os.WriteFile(ready+".seen", nil, 0o600)
				f(number(filepath.Base(filepath.Dir(name))))
			}
		}
	}
}

// speakForTool takes the stdout of each file tool (pidfd_getfd(2), for which it must
// be allowed to trace it) and writes a[1] to it: "endless" without end, "questions" as
// many of them.
func speakForTool(a []string) (string, error) {
	return "", onTools(a[0], func(pid int) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		out, err := unix.PidfdGetfd(fd, 1, 0)
		if err != nil {
			return
		}
		defer unix.Close(out)
		_ = os.WriteFile(a[0]+".spoke", nil, 0o600)
		say := []byte(a[1] + "\n")
		switch a[1] {
		case "endless":
			say = bytes.Repeat([]byte("x"), 1<<16)
		case "questions":
			say = []byte(`{"ask":{"op":"read","path":"/x"}}` + "\n")
		default:
			_, _ = unix.Write(out, say)
			return
		}
		for {
			if _, err := unix.Write(out, say); err != nil {
				return
			}
		}
	})
}

// swapNames lets a[1] and a[2] change places without end.
func swapNames(a []string) (string, error) {
	check(os.WriteFile(a[0], nil, 0o600))
	for end := time.Now().Add(time.Hour); time.Now().Before(end); {
		if err := unix.Renameat2(unix.AT_FDCWD, a[1], unix.AT_FDCWD, a[2], unix.RENAME_EXCHANGE); err != nil && !strings.Contains(fmt.Sprint(err), "no such") {
			return "", err
		}
	}
	return "", nil
}
