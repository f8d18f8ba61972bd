package wrapper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/guard"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/internal/shell"
	"github.com/chatd/chatd/shims"
)

// shim is one call of a program that has a shim.
type shim struct {
	policy plan.ShimPolicy
	guard  *guard.Guard
	name   string
	argv   []string
	cwd    string
}

func newShim(policy plan.ShimPolicy, argv []string, cwd string) (shim, error) {
	g, err := guard.New(policy.Guard)
	return shim{policy: policy, guard: g, name: argv[0], argv: argv, cwd: cwd}, err
}

// fail reports an error that occurred before any check.
func fail(errs io.Writer, err error) int {
	fmt.Fprintf(errs, "%s: %v\n", plan.ProgramName, err)
	return 125
}

// Main checks argv and becomes the program of that name, or says why not and returns
// [plan.ExitRefused]. A program that is not there is 127, as in a shell.
func Main(name string, argv []string) int { return runShim(name, argv, os.Stderr) }

func runShim(name string, argv []string, errs io.Writer) int {
	policy, err := plan.ReadShimPolicy(plan.InsidePolicy)
	if err != nil {
		return fail(errs, err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		cwd = policy.Home // it was removed
	}
	s, err := newShim(policy, append([]string{name}, argv[1:]...), cwd)
	if err != nil {
		return fail(errs, err)
	}
	r, err := s.check()
	if err != nil {
		return fail(errs, err)
	}
	if r.Rule == "" {
		r = s.reader()
	}
	if r.Rule != "" {
		fmt.Fprintf(errs, "chatd: %s refused: %s; %s (rule %s)\n", name, r.Reason, r.Instead, r.Rule)
		return plan.ExitRefused
	}
	return s.exec(errs)
}

// check asks the guard, then what never runs here and the file rules. The zero denial lets the
// program run.
func (s shim) check() (d chat.RunDenial, err error) {
	v, err := s.guard.Argv(s.argv, guard.Place{Home: s.policy.Home, Cwd: s.cwd})
	switch {
	case errors.Is(err, chat.ErrInvalid) && !v.Denied: // too long to be gone through
	case err != nil:
		return d, err
	case v.Denied:
		return v.RunDenial, nil
	}
	if rule, never := plan.Never(s.name); never && !s.guard.Allows(s.argv) {
		d.Rule = "never"
		d.Reason, d.Instead = guard.Why(rule)
		return d, nil
	}
	return s.paths()
}

// paths holds the paths of the command line against the file rules.
func (s shim) paths() (d chat.RunDenial, err error) {
	if len(s.policy.Rules) == 0 {
		return d, nil
	}
	p, err := filerules.ReadCompiled(s.policy.Rules)
	if err != nil {
		return d, err
	}
	rs, err := p.For(filerules.Scope{Agent: s.policy.Agent, Home: s.policy.Home, Cwd: s.cwd,
		Resolve: filerules.Physical})
	if err != nil {
		return d, err
	}
	v, err := shell.CheckArgv(rs, s.argv)
	if err != nil || !v.Denied() {
		return d, nil // too long to be gone through; the kernel keeps to the rules
	}
	return chat.RunDenial{Rule: v.Rule.String(), Reason: "the file rules deny " + chat.Quote(v.Name),
		Instead: "use another path, or ask an operator"}, nil
}

// exec becomes the program: the first of its name in PATH that is not a shim.
func (s shim) exec(errs io.Writer) int {
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fail(errs, fmt.Errorf("cannot tell shims from programs: %w", err))
	}
	env := os.Environ()
	for _, p := range append(shims.InPath(s.name, env), filepath.Join(plan.InsideBin, s.name)) {
		info, err := os.Stat(p)
		if err != nil || os.SameFile(own, info) {
			continue
		}
		if err := syscall.Exec(p, s.argv, env); !errors.Is(err, syscall.EACCES) {
			fail(errs, fmt.Errorf("cannot run %s: %w", chat.Quote(s.name), err))
			if errors.Is(err, syscall.ENOENT) {
				return 127
			}
			return 126
		}
	}
	fmt.Fprintf(errs, "chatd: %s is not among the commands of this profile; ask an operator\n", s.name)
	return 127
}

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
