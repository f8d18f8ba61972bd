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
