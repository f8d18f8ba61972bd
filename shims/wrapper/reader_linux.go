package wrapper

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/shell"
)

// readerTimeout is how long a shell may take to become what reads the pipe.
const readerTimeout = 50 * time.Millisecond

// reader looks for a shell at the other end of curl's or wget's output. A shim sees its own command
// line, and what the shell put behind it only in /proc.
func (s shim) reader() (none chat.RunDenial) {
	pipe, err := os.Readlink("/proc/self/fd/1")
	if s.name != "curl" && s.name != "wget" || !s.policy.Guard.EnableDenyPatterns || err != nil ||
		!strings.HasPrefix(pipe, "pipe:") || s.guard.Allows(s.argv) {
		return none
	}
	parent := cmdline(os.Getppid())
	for end := time.Now().Add(readerTimeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		argv := readerOf(pipe)
		// A shell that is about to become something else still looks like its parent.
		if argv != nil && !slices.Equal(argv, parent) {
			c := shell.Call{Home: s.policy.Home, Cwd: s.cwd, From: []string{s.name}}
			for _, a := range argv {
				c.Args = append(c.Args, shell.Arg{Text: a})
			}
			return s.guard.Call(&c).RunDenial
		}
	}
	return none
}

// readerOf is the command line of another process that has pipe as its input.
func readerOf(pipe string) []string {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if in, err := os.Readlink(dir + "/fd/0"); err == nil && in == pipe {
			if argv := cmdline(pid); argv != nil {
				return argv
			}
		}
	}
	return nil
}

func cmdline(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}
