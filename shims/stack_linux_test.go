package shims

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/must"
)

// The tests of the walls run the real stack, bwrap and chatd-shim confine as a
// uid that no account has, and attack from within: the attacker is this test
// binary under the name "attack".
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "attack" {
		os.Exit(attackMain(os.Args[1:]))
	}
	if os.Args[0] == confineName {
		os.Exit(runConfine([]string{"--plan-fd", "3"}, os.Stderr))
	}
	if os.Args[0] == enterName {
		os.Exit(enterMain(os.Args[1:]))
	}
	code := m.Run()
	if shimDir != "" {
		os.RemoveAll(shimDir)
	}
	os.Exit(code)
}

// need skips loudly, or fails where everything should be there.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	must.True(t, os.Getenv("CHATD_TEST_REQUIRE") != "all", "%v", "needs "+what)
	t.Skip("needs " + what)
}

func needStack(t *testing.T) {
	t.Helper()
	need(t, os.Geteuid() == 0, "root: to become a chat's uid")
	for _, p := range []string{"bwrap", "tmux", "nsenter"} {
		_, err := exec.LookPath(p)
		need(t, err == nil, p+": it is part of a session")
	}
}

var shimDir string

// buildShim builds the real program once.
var buildShim = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "chatd-shim-build-")
	if err != nil {
		return "", err
	}
	shimDir = dir
	out := filepath.Join(dir, plan.ProgramName)
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", out, "../cmd/chatd-shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(text)))
	}
	return out, nil
})

var nextUID atomic.Uint32

// newView makes a chat by hand: home, /tmp, /var/tmp, fifo, shims. Not below
// /tmp, which is covered inside.
func newView(t *testing.T) plan.View {
	t.Helper()
	needStack(t)
	shim, err := buildShim()
	must.True(t, err == nil, "build chatd-shim: %v", err)
	base := must.Get(os.MkdirTemp("/srv", "chatd-shims-test-"))(t)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(base)) })
	must.Do(t, os.Chmod(base, 0o711))
	uid := 1895825000 + nextUID.Add(1)
	v := plan.View{
		User: "chat-test", UID: uid, Home: base + "/home", Tmp: base + "/tmp", VarTmp: base + "/vartmp",
		Network: chat.NetworkNone, Shim: base + "/chatd-shim", ShimDir: base + "/shims", BinDir: base + "/bin",
		PromptFIFO: base + "/prompt", TmuxConf: []byte("set -g default-command \"" + strings.Join(plan.ShellArgv(), " ") + "\"\n"),
	}
	for _, d := range []string{v.Home, v.Tmp, v.VarTmp} {
		must.Do(t, os.Mkdir(d, 0o700))
		must.Do(t, os.Chown(d, int(uid), int(uid)))
	}
	must.Do(t, syscall.Mkfifo(v.PromptFIFO, 0o600))
	must.Do(t, os.Chown(v.PromptFIFO, int(uid), int(uid)))
	copyFile(t, shim, v.Shim)
	copyFile(t, "/proc/self/exe", v.Home+"/attack")
	must.Do(t, plan.WriteShims(v.ShimDir, plan.InsideShim, t.TempDir()))
	must.Get(plan.NewPrograms([]string{"/usr/bin"}).WriteBin(v.BinDir, []string{"*"}))(t)
	return v
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in := must.Get(os.ReadFile(from))(t)
	must.Do(t, os.WriteFile(to, in, 0o755))
	must.Do(t, os.Chmod(to, 0o755))
}

// process is a started bwrap or nsenter, with what its descriptors said.
type process struct {
	cmd     *exec.Cmd
	out     bytes.Buffer
	copied  chan struct{} // closed when out is whole
	report  *os.File
	initPID int // the host's pid of a session's process 1; 0 when bwrap failed
}

// pipeOf gives the reading end of a pipe from which text will come.
func pipeOf(t *testing.T, text []byte) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	must.Do(t, err)
	go func() {
		defer w.Close()
		w.Write(text)
	}()
	return r
}

func start(t *testing.T, cmd *exec.Cmd, p plan.Plan, more func(fds []*os.File) []*os.File) *process {
	t.Helper()
	p.ReportFD = 4
	text := must.Get(json.Marshal(p))(t)
	reportR, reportW, err := os.Pipe()
	must.Do(t, err)
	proc := &process{cmd: cmd, report: reportR}
	fds := []*os.File{pipeOf(t, text), reportW}
	if more != nil {
		fds = more(fds)
	}
	cmd.ExtraFiles = fds[:len(fds):len(fds)]
	cmd.Env = []string{"LEAK=1"}
	outR, outW, err := os.Pipe()
	must.Do(t, err)
	if c := cmd.SysProcAttr; c != nil {
		// Else the chat may write to its descriptor and not to /dev/stderr.
		must.Do(t, outW.Chown(int(c.Credential.Uid), int(c.Credential.Gid)))
	}
	cmd.Stdout, cmd.Stderr = outW, outW
	fds = append(fds, outW) // to be closed here with the others
	must.Do(t, cmd.Start())
	proc.copied = make(chan struct{})
	go func() {
		defer close(proc.copied)
		defer outR.Close()
		io.Copy(&proc.out, outR)
	}()
	for _, f := range fds {
		f.Close()
	}
	t.Cleanup(func() {
		// A session outlives bwrap's monitor, as it must: end its process 1 first.
		if proc.initPID > 0 {
			syscall.Kill(proc.initPID, syscall.SIGKILL)
		}
		cmd.Process.Kill()
		cmd.Wait()
		reportR.Close()
	})
	return proc
}

// startSession runs p as the first command of a view.
func startSession(t *testing.T, v plan.View, p plan.Plan) *process {
	t.Helper()
	v.InfoFD = 5
	args, files := v.Args(6)
	cmd := exec.Command("bwrap", append(args, "--", plan.InsideShim, "confine", "--plan-fd", "3")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: v.UID, Gid: v.UID}}
	infoR, infoW, err := os.Pipe()
	must.Do(t, err)
	proc := start(t, cmd, p, func(fds []*os.File) []*os.File {
		fds = append(fds, infoW)
		for _, f := range files {
			fds = append(fds, pipeOf(t, f.Content))
		}
		return fds
	})
	defer infoR.Close()
	var info struct {
		PID int `json:"child-pid"`
	}
	if err := json.NewDecoder(infoR).Decode(&info); err == nil {
		proc.initPID = info.PID
	}
	return proc
}

// join runs p in the namespaces of a session.
func join(t *testing.T, v plan.View, initPID int, p plan.Plan) *process {
	t.Helper()
	args := []string{"-t", strconv.Itoa(initPID), "-U", "-m", "-p", "-i", "-u", "-S", strconv.Itoa(int(v.UID)), "-G", strconv.Itoa(int(v.UID))}
	if v.Network == chat.NetworkNone {
		args = append(args, "-n")
	}
	return start(t, exec.Command("nsenter", append(args, "--", plan.InsideShim, "confine", "--plan-fd", "3")...), p, nil)
}

// wait returns what the command printed and how it ended.
func (p *process) wait(t *testing.T) (string, int, []plan.Report) {
	t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	<-p.copied
	code := p.cmd.ProcessState.ExitCode()
	return strings.TrimSpace(p.out.String()), code, p.reports(t)
}

// reports reads until the exec, or the exit, closes the descriptor.
func (p *process) reports(t *testing.T) []plan.Report {
	t.Helper()
	var out []plan.Report
	in := bufio.NewReader(p.report)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return out
		}
		must.Do(t, err)
		var r plan.Report
		must.Do(t, json.Unmarshal(line, &r))
		out = append(out, r)
	}
}

// runIn is a whole session that runs one command.
func runIn(t *testing.T, v plan.View, argv ...string) (string, int, []plan.Report) {
	t.Helper()
	return startSession(t, v, v.Plan(v.Home, 1, argv, nil)).wait(t)
}

// eventually asks again until yes, for as long as a slow machine may need.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if yes() {
			return
		}
	}
	t.Fatalf("never happened: %s", what)
}
