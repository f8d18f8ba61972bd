package background

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/session"
)

// TestOnlyRootsProgramIsStarted: chatd starts no supervisor from a file that a user other than root
// may write to. The error says why.
func TestOnlyRootsProgramIsStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o757)); err != nil {
		t.Fatal(err)
	}
	r := New(Options{Dir: t.TempDir(), Shim: file}).newRun(About{})
	_, _, err := r.supervisorCommand(&exec.Cmd{}, &session.Stdio{}, &session.Files{})
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "may write to it") {
		t.Errorf("a supervisor that everybody may write to: %v", err)
	}
}
