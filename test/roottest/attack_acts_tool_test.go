package roottest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
	if err := os.WriteFile(a[0], nil, 0o600); err != nil {
		return "", err
	}
	for end := time.Now().Add(time.Hour); time.Now().Before(end); {
		if err := unix.Renameat2(unix.AT_FDCWD, a[1], unix.AT_FDCWD, a[2], unix.RENAME_EXCHANGE); err != nil && !strings.Contains(fmt.Sprint(err), "no such") {
			return "", err
		}
	}
	return "", nil
}
