package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/front"
	"github.com/chatd/chatd/internal/config/configfile"
	"github.com/chatd/chatd/landlock"
)

// rootProgram is chatd-root, for what needs the privilege.
func rootProgram(verb string, f configfile.Flags) (program string, args []string, err error) {
	what := rootVerbs[verb]
	if verb != "check" {
		err = needRoot(what)
	}
	if err == nil && (verb == "serve" || verb == "doctor") {
		err = needCapabilities(what)
	}
	if err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("cannot %s: %w", verb, err)
	}
	args = []string{"chatd-root", verb, "--front=" + self}
	if f.File != "" {
		args = append(args, "--config="+f.File)
	}
	for _, s := range f.Set {
		args = append(args, "--set="+s.Text())
	}
	return findProgram("chatd-root"), args, nil
}

// becomeRoot is chatd serve from here on: one process, one unit, one command.
func becomeRoot(f configfile.Flags) error {
	program, args, err := rootProgram("serve", f)
	if err != nil {
		return err
	}
	inherit, err := inherited()
	if err != nil {
		return err
	}
	err = unix.Exec(program, append(args, inherit...), os.Environ())
	return fmt.Errorf("cannot serve: %s: %w: install it beside chatd or in /usr/local/lib/chatd: %w",
		chat.Quote(program), err, chat.ErrUnsupported)
}

// inherited is the socket that systemd made for chatd.socket, for chatd-root to take over. The
// variables are taken away, so that no program chatd starts believes that they are meant for it.
func inherited() ([]string, error) {
	files := activation.Files(true)
	if len(files) == 0 {
		return nil, nil
	}
	if len(files) > 1 {
		return nil, chat.Invalid("cannot use the sockets that were handed over: got %d, want only that of "+
			"chatd.socket", len(files))
	}
	fd, err := unix.Dup(int(files[0].Fd())) // which goes through execve(2), and the other does not
	if err != nil {
		return nil, fmt.Errorf("cannot hand the socket on: %w", err)
	}
	return []string{fmt.Sprintf("--inherit=%d", fd)}, nil
}

// runRoot is [askRoot]. doctor has a network namespace, where packet rules can be raised and tried
// without touching the host's.
func runRoot(ctx context.Context, verb string, f configfile.Flags, more ...string) ([]byte, error) {
	program, args, err := rootProgram(verb, f)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(args[1:], more...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if verb == "doctor" {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, client.ErrorOf(exit.ExitCode(),
			strings.TrimPrefix(strings.TrimSpace(said.String()), "chatd: "))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot %s: %s: %w: %w", verb, chat.Quote(program), err, chat.ErrUnsupported)
	}
	return out, nil
}

// needed are the capabilities of chatd.service and of what it starts.
var needed = []struct {
	name   string
	number uint
}{
	{"SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"NET_ADMIN", unix.CAP_NET_ADMIN}, {"SYS_PTRACE", unix.CAP_SYS_PTRACE},
	{"DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH}, {"SYS_CHROOT", unix.CAP_SYS_CHROOT},
	{"CHOWN", unix.CAP_CHOWN},
	{"DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"FOWNER", unix.CAP_FOWNER}, {"KILL", unix.CAP_KILL},
	{"SETUID", unix.CAP_SETUID}, {"SETGID", unix.CAP_SETGID}, {"NET_RAW", unix.CAP_NET_RAW},
	{"NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
}

// needCapabilities fails where no wall can be tried: without these two there is neither a namespace
// nor a packet rule. It names all that is missing. What one of the others is for, its layer says.
func needCapabilities(what string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("cannot %s: cannot read the capabilities: %w", what, err)
	}
	lacks := func(c uint) bool { return have[c/32].Effective&(1<<(c%32)) == 0 }
	if !lacks(unix.CAP_SYS_ADMIN) && !lacks(unix.CAP_NET_ADMIN) {
		return nil
	}
	var missing, options []string
	for _, c := range needed {
		if lacks(c.number) {
			missing, options = append(missing, "CAP_"+c.name), append(options, "--cap-add="+c.name)
		}
	}
	var cgroups unix.Statfs_t
	if unix.Statfs("/sys/fs/cgroup", &cgroups) == nil && cgroups.Flags&unix.ST_RDONLY != 0 {
		missing = append(missing,
			"a /sys/fs/cgroup that can be written (in the container: mount -o remount,rw /sys/fs/cgroup)")
	}
	return fmt.Errorf("cannot %s: this process is root without %s; a container gets them by %s --security-opt=apparmor=unconfined "+
		"--security-opt=seccomp=unconfined, or by --privileged: %w", what, strings.Join(missing, ", "),
		strings.Join(options, " "), chat.ErrUnsupported)
}

// Bounds of the config step: bytes of memory, and seconds of the processor's time.
const (
	compileData = 1 << 30
	compileCPU  = 20
)

// confineCompile gives up all but reading and writing of what is open, before a byte is read. Without
// Landlock (Linux before 5.13) the system call filter alone refuses paths.
func confineCompile() error {
	for resource, max := range map[int]uint64{unix.RLIMIT_DATA: compileData, unix.RLIMIT_CPU: compileCPU} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: max, Max: max}); err != nil {
			return fmt.Errorf("cannot bound the config step: %w", err)
		}
	}
	_, err := landlock.Restrict(landlock.Rules{}, "getrlimit", "prlimit64", "uname")
	return err
}

func runFront(ctx context.Context) error { return front.Run(ctx, version) }
