package termlog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestInit: chatd-shim, called as tmux calls it, passes on what it reads, and has initialized
// neither this module's other packages nor a third party's: each would cost memory in each chat.
func TestInit(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil && os.Getenv("CHATD_TEST_REQUIRE") != "all" {
		t.Skip("there is no go to build chatd-shim with")
	}
	dir := t.TempDir()
	shim, fifo := filepath.Join(dir, plan.ProgramName), filepath.Join(dir, "fifo")
	build := exec.Command("go", "build", "-o", shim, "../../cmd/chatd-shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	must.Run(t, build)
	must.Do(t, unix.Mkfifo(fifo, 0o600))
	r := must.Get(os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0))(t)
	defer r.Close()
	paths := strings.NewReplacer(plan.InsideShim, shim, plan.InsideLog, fifo)
	cmd := exec.Command("/bin/sh", "-c", paths.Replace(plan.LogCommand))
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	cmd.Stdin = strings.NewReader("printed")
	var said strings.Builder
	cmd.Stderr = &said
	must.Do(t, cmd.Run())
	got := make([]byte, 100)
	n, err := r.Read(got)
	if must.Do(t, err); string(got[:n]) != "printed" {
		t.Errorf("passed on: %q", got[:n])
	}
	must.True(t, strings.Contains(said.String(), "init os @"),
		"no trace of what was initialized: %s", &said)
	for line := range strings.Lines(said.String()) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "init "), " ")
		expect.True(t, !strings.Contains(name, "."), "package %s was initialized", name)
	}
}
