package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// thing is a line of things.txt.
type thing struct{ program, source, differs, command string }

func things(t *testing.T) (all []thing) {
	t.Helper()
	for line := range strings.Lines(string(must.Get(os.ReadFile("things.txt"))(t))) {
		if f := strings.Split(strings.TrimSuffix(strings.ReplaceAll(line, "␤", "\n"), "\n"), "\t"); line[0] != '#' {
			all = append(all, thing{f[0], f[1], f[2], f[3]})
		}
	}
	return all
}

// TestThings: what people and agents do in a shell ends alike in the profile `agent` as it is shipped
// and outside of chatd, as a user of its own: the same exit code and the same last line. What differs
// is written beside it in things.txt, and does differ. With -short it tries every fifth.
func TestThings(t *testing.T) {
	opt := options(t)
	d := shippedDaemon(t, opt, t.TempDir())
	c := must.First(d.Create(t.Context(), chat.Spec{ExternalID: "things", Profile: "agent"}))(t)
	outside := outsideHome(t)
	tried := 0
	for i, th := range things(t) {
		if testing.Short() && i%5 != 0 {
			continue
		}
		if _, err := exec.LookPath(th.program); err != nil {
			t.Logf("the host has no %s", th.program)
			continue
		}
		tried++
		script := fmt.Sprintf("mkdir t%d && cd t%d\n%s", i, i, th.command)
		inside := "refused"
		r, err := d.Run(t.Context(), c.ID, chat.RunSpec{Argv: []string{"bash", "-c", script}, Timeout: chat.Duration(2 * time.Minute)})
		if err == nil {
			inside = fmt.Sprint(r.Exit, r.Signal, " ", lastOf(r.Stdout))
		} else if !errors.Is(err, chat.ErrDenied) {
			t.Errorf("%s: %v", th.command, err)
		}
		if want := outsideRun(t, outside, script); (inside == want) != (th.differs == "") {
			t.Errorf("%s (%s): %q inside, %q outside, differs %q: %s %v", th.command, th.source, inside, want, th.differs, r.Stderr, err)
		}
	}
	if t.Logf("%d tried", tried); tried < 60 && !testing.Short() || tried < 12 {
		t.Errorf("%d tried, too few", tried)
	}
}

// outsideUID is nobody, whose name programs look up.
const outsideUID = 65534

// outsideHome is a home outside of chatd.
func outsideHome(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("/srv", ".outside"))(t)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chown(dir, outsideUID, outsideUID))
	return dir
}

// outsideRun runs a script as a user of its own, and returns its end as the test compares it.
func outsideRun(t *testing.T, home, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "USER=nobody", "SHELL=/bin/bash", "TMPDIR=" + home, "TERM=tmux-256color"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: outsideUID, Gid: outsideUID}}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	must.True(t, cmd.ProcessState != nil, "%v", err)
	return fmt.Sprint(cmd.ProcessState.ExitCode(), " ", lastOf(string(out)))
}

// lastOf is the last line of a text.
func lastOf(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return filepath.Base(lines[len(lines)-1])
}
