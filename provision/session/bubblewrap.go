package session

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
)

// Plan is what chatd-shim confine does in p's view before it execs the program.
func (s *Starter) Plan(p Spec) plan.Plan {
	return s.plan(p.View, p.Limits, p.View.Home, p.Argv, p.Env)
}

func (s *Starter) plan(v plan.View, limits chat.ProcessLimits, dir string, argv, env []string) plan.Plan {
	p := v.Plan(dir, s.opt.LandlockABI, argv, env)
	p.ProcessLimits, p.ReportFD = limits, fdReport
	return p
}

// The descriptors of a session's first process, after the three of stdio.
const (
	fdPlan   = 3
	fdReport = 4
	fdInfo   = 5
	fdData   = 6
)

// Bubblewrap is bwrap(1), as the chat, with p's program confined in its view; [Starter.Launch]
// starts it. Its stdout and stderr go to a file of fixed size, b.Stderr. Where b.Err is set the
// command is not whole.
func (s *Starter) Bubblewrap(p Spec, b *Files) *exec.Cmd {
	v := p.View
	v.InfoFD = fdInfo
	args, files := v.Args(fdData)
	inside := s.Plan(p)
	inside.BarrierFD = fdData + len(files) + 1
	b.raise, b.prepare = prepareMounts(v, p.Rules), s.stageOverlays(p.Chat, p.View)
	b.plan(inside)
	b.Report = b.Pipe()
	b.info = b.Pipe()
	for _, f := range files {
		b.Data(f.Target, f.Content)
	}
	// The arguments go by descriptor too: they would fill the process list.
	b.Data("arguments", []byte(strings.Join(args, "\x00")+"\x00"))
	b.addBarrier()
	cmd := exec.Command("bwrap", "--args", fmt.Sprint(fdData+len(files)), "--",
		plan.InsideShim, "confine", "--plan-fd", fmt.Sprint(fdPlan))
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = b.Child
	b.Stderr = b.Output("stderr")
	cmd.Stdout, cmd.Stderr = b.Stderr, b.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: v.UID, Gid: v.UID, Groups: []uint32{v.UID}},
	}
	return cmd
}

// Joining is nsenter(1) with e's command, which joins the namespaces of the session's init process;
// the caller starts it in a [Leaf]. It runs as root: the chat may not join them, because
// bubblewrap's inner user namespace has another owner. nsenter sets neither no_new_privs nor the
// bounding set; chatd-shim confine does. A session that has ended is [chat.ErrBusy].
func (s *Starter) Joining(in *Session, e Entry, b *Files) (*exec.Cmd, error) {
	namespaces, err := in.Init.Namespaces()
	if errors.Is(err, fs.ErrNotExist) {
		err = chat.ErrNotFound // proc(5) has no namespaces of a process that has ended
	}
	if err != nil {
		return nil, asEnded(in.Chat, err)
	}
	s.Refresh(in)
	inside := s.plan(e.View, e.Limits, e.Dir, e.Argv, e.Env)
	inside.Setsid = true // nsenter's own session (setsid(2)) is outside the chat's pid namespace
	b.plan(inside)
	b.Report = b.Pipe()
	var args []string
	for _, n := range namespaces {
		option := strings.Replace(n.Type, "mnt", "mount", 1) // nsenter(1)'s name for it
		args = append(args, fmt.Sprintf("--%s=/proc/self/fd/%d", option, 3+len(b.Child)))
		b.Child = append(b.Child, n.File)
	}
	uid := strconv.FormatUint(uint64(in.UID), 10)
	args = append(args, "-S", uid, "-G", uid, "--",
		plan.InsideShim, "confine", "--plan-fd", fmt.Sprint(fdPlan))
	cmd := exec.Command("nsenter", args...)
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.ExtraFiles = b.Child
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, b.Err
}
