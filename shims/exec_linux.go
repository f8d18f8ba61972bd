package shims

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"golang.org/x/sys/unix"
)

// execError is an exec that failed; its exit code is env(1)'s.
type execError struct {
	name string
	err  error
}

func (e *execError) Error() string {
	return fmt.Sprintf("cannot run %s: %v", chat.Quote(e.name), e.err)
}

func (e *execError) Unwrap() error { return e.err }

// exitCode is the exit code of chatd-shim confine: 127 for a command that does not exist, 126
// for one that cannot run, 125 if confining failed.
func exitCode(err error) int {
	var e *execError
	switch {
	case !errors.As(err, &e):
		return 125
	case errors.Is(e.err, unix.ENOENT):
		return 127
	}
	return 126
}

// execute becomes p's command: execvp(3) with the plan's PATH, but without its
// fallback to sh for a file that is not a program.
func execute(p plan.Plan) error {
	name := p.Argv[0]
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = InPath(name, p.Env)
	}
	failure := error(unix.ENOENT)
	for _, c := range candidates {
		err := syscall.Exec(c, p.Argv, p.Env)
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			failure = err
			if !errors.Is(err, unix.EACCES) {
				break
			}
		}
	}
	return &execError{name, failure}
}

// InPath lists the paths at which PATH may have a name. It skips an empty or relative
// directory, which would mean the chat's own working directory.
func InPath(name string, env []string) []string {
	var out []string
	for _, e := range env {
		dirs, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(dirs, ":") {
			if path.IsAbs(dir) {
				out = append(out, path.Join(dir, name))
			}
		}
	}
	return out
}
