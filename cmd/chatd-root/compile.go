package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/config"
)

// compiler reads the config and the files of rules. It opens them, and has a process without
// privilege parse them: the config step, which gets one text and answers in one form. The answer is
// read strictly, and has to be of the text by its hash (adrs/0113).
type compiler struct {
	program string   // chatd, whose config step it is
	file    string   // the config; empty is the default, if it is there
	set     []string // over it
	// apart: the step has namespaces of its own. The unit of chatd wall, which may make none, gives it
	// no network that it could use either.
	apart bool
}

// stepTimeout bounds one step, of which a large file of rules takes a second; tests shorten it.
var stepTimeout = 30 * time.Second

// config is the config as it is now, with all that can be said of it without the host.
func (c compiler) config(ctx context.Context) (config.Config, error) {
	name, text, err := config.ReadFile(c.file)
	if err != nil {
		return config.Config{}, err
	}
	what, sum := config.StepConfig, filerules.SumOf(text)
	if text == nil {
		what, sum = config.StepDefaults, ""
	}
	out, err := c.step(ctx, text, config.MaxCompiled,
		slices.Concat([]string{what, name}, variables(), c.set)...)
	if err != nil {
		return config.Config{}, err
	}
	cfg, err := config.ReadCompiled(out)
	if err == nil && cfg.Sum != sum {
		err = chat.Invalid("cannot use %s: the config step compiled another text", name)
	}
	cfg.FindPrograms()
	return cfg, err
}

// rules reads a file of rules.
func (c compiler) rules(ctx context.Context, file string) (*filerules.Policy, error) {
	text, err := config.ReadText(file)
	if err != nil {
		return nil, chat.Invalid("cannot read the policy: %w", err)
	}
	out, err := c.step(ctx, text, filerules.MaxCompiled, config.StepRules, file)
	if err != nil {
		return nil, err
	}
	p, err := filerules.ReadCompiled(out)
	if err == nil && (p.Sum != filerules.SumOf(text) || p.Name != strings.ToValidUTF8(file, "\ufffd")) {
		err = chat.Invalid("cannot use %s: the config step compiled another text", file)
	}
	return p, err
}

// allRules are the file rules of all profiles; a file that several name is read once. It gives a
// profile the guard of its file.
func (c compiler) allRules(ctx context.Context, cfg config.Config) (map[string]*filerules.Policy, error) {
	read := map[string]*filerules.Policy{}
	return cfg.Rules(func(file string) (p *filerules.Policy, err error) {
		if read[file] == nil {
			read[file], err = c.rules(ctx, file)
		}
		return read[file], err
	})
}

// step passes a text to a config step and returns what it answers, at most max bytes.
func (c compiler) step(ctx context.Context, text []byte, max int, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	program, err := os.Open(c.program)
	if err != nil {
		return nil, fmt.Errorf("cannot use the program of the config step: %w: %w", err, chat.ErrUnsupported)
	}
	defer program.Close()
	// By descriptor: the directory of the program may be root's alone.
	cmd := exec.CommandContext(ctx, "/proc/self/fd/3", args...)
	cmd.Args = append([]string{"chatd-config", "compile"}, args...)
	cmd.ExtraFiles, cmd.Stdin = []*os.File{program}, bytes.NewReader(text)
	cmd.Env, cmd.Dir, cmd.SysProcAttr = []string{}, "/", c.attributes()
	cmd.WaitDelay = time.Second
	runtime.LockOSThread() // PR_SET_PDEATHSIG of prctl(2) is of the thread that starts it
	defer runtime.UnlockOSThread()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the config step: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(out, int64(max)+1))
	tooLong := len(answer) > max
	if tooLong {
		cancel()
	}
	err = errors.Join(err, cmd.Wait())
	var exit *exec.ExitError
	switch {
	case tooLong:
		err = fmt.Errorf("it wrote more than %d bytes", max)
	case ctx.Err() != nil:
		err = fmt.Errorf("it was ended: %w", ctx.Err())
	case errors.As(err, &exit) && len(answer) > 0:
		return nil, refusal(printable(string(answer)), exit.ExitCode())
	}
	if err != nil {
		return nil, fmt.Errorf("cannot compile %s: the config step: %w", chat.Quote(args[1]), err)
	}
	return answer, nil
}

// stepID is the uid and gid of a step: the last of systemd's for services without a user (DynamicUser
// in systemd.exec(5)), which identityOf never gives. To look for another would ask the name services
// at boot.
const stepID = 65519

// attributes put the step into namespaces of its own, with an empty network, and as a uid of nobody's.
// Without root, as chatd-root check may be, its rights are the caller's. It has no PID namespace: the
// filter refuses it kill(2) and ptrace(2). Built with cgo it would wait forever in one: libpsx, by which
// all threads take Landlock's rules, finds them in /proc/self/task, which has the ids of another.
func (c compiler) attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		a.Credential = &syscall.Credential{Uid: stepID, Gid: stepID}
	}
	if c.apart && os.Geteuid() == 0 {
		a.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	}
	return a
}

// variables are those of this process that may be for the config.
func variables() []string {
	other := func(v string) bool { return !strings.HasPrefix(v, config.VariablePrefix) }
	return slices.DeleteFunc(os.Environ(), other)
}

// refusal is what a step says of a text that it refuses.
func refusal(text string, exit int) error {
	if exit == chat.ExitCode(chat.ErrInvalid) {
		return chat.Invalid("%s", strings.TrimSuffix(text, ": "+chat.ErrInvalid.Error()))
	}
	return errors.New(text)
}

// printable is a text of a step for a log and a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
