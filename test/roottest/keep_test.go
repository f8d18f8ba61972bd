package roottest

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/provision/enforcer"
	"github.com/chatd/chatd/test/must"
)

// TestEnforcerEnds: chatd-enforce ends on SIGTERM, which systemd sends, and does not wait to be
// killed.
func TestEnforcerEnds(t *testing.T) {
	opt := options(t)
	defer endEnforcer(t, opt)
	dir := filepath.Join(opt.Run, "keeper")
	keep := exec.Command(programs.enforce, "--dir", dir)
	must.Do(t, keep.Start())
	ended := make(chan error, 1)
	go func() { ended <- keep.Wait() }()
	until(t, "the enforcer answers", func() bool {
		return enforcer.New(enforcer.Options{Dir: dir}).Keeps(t.Context(), enforcer.Session{})
	})
	must.Do(t, keep.Process.Signal(syscall.SIGTERM))
	select {
	case <-ended:
	case <-time.After(longEnough):
		_ = keep.Process.Kill()
		t.Error("the enforcer goes on after SIGTERM")
	}
}
