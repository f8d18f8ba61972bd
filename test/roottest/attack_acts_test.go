package roottest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

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
	got, err := acts[args[0]](args[1:])
	if err != nil {
		return errorName(err)
	}
	return strings.TrimSpace("ok " + got)
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
