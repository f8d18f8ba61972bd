package wrapper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

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

// denial says why a program does not run; the zero value lets it.
type denial struct{ rule, reason, instead string }

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
	if r.rule == "" {
		r = s.reader()
	}
	if r.rule != "" {
		fmt.Fprintf(errs, "chatd: %s refused: %s; %s (rule %s)\n", name, r.reason, r.instead, r.rule)
		return plan.ExitRefused
	}
	return s.exec(errs)
}

// check asks the guard, then what never runs here and the file rules.
func (s shim) check() (denial, error) {
	v, err := s.guard.Argv(s.argv, guard.Place{Home: s.policy.Home, Cwd: s.cwd})
	switch {
	case errors.Is(err, chat.ErrInvalid) && !v.Denied: // too long to be gone through
	case err != nil:
		return denial{}, err
	case v.Denied:
		return denial{v.Rule, v.Reason, v.Instead}, nil
	}
	if rule, never := plan.Never(s.name); never && !s.guard.Allows(s.argv) {
		reason, instead := guard.Why(rule)
		return denial{"never", reason, instead}, nil
	}
	return s.paths()
}

// paths holds the paths of the command line against the file rules.
func (s shim) paths() (denial, error) {
	if len(s.policy.Rules) == 0 {
		return denial{}, nil
	}
	p, err := filerules.ReadCompiled(s.policy.Rules)
	if err != nil {
		return denial{}, err
	}
	rs, err := p.For(filerules.Scope{Agent: s.policy.Agent, Home: s.policy.Home, Cwd: s.cwd,
		Resolve: filerules.Physical})
	if err != nil {
		return denial{}, err
	}
	v, err := shell.CheckArgv(rs, s.argv)
	if err != nil || !v.Denied() {
		return denial{}, nil // too long to be gone through; the kernel keeps to the rules
	}
	return denial{v.Rule.String(), "the file rules deny " + chat.Quote(v.Name),
		"use another path, or ask an operator"}, nil
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
