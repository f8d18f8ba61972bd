package provision

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// TestOnlyRootsProgramIsStarted: chatd starts no supervisor that anybody but root could have
// written. The error says why, and nothing is made before.
func TestOnlyRootsProgramIsStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o757)); err != nil {
		t.Fatal(err)
	}
	m := &Manager{paths: paths{shim: file}}
	_, _, err := m.supervisorCommand(state.Record{}, &liveRun{}, &exec.Cmd{}, &runStdio{}, &boundFiles{})
	if !errors.Is(err, chat.ErrUnsupported) || !strings.Contains(err.Error(), "may write to it") {
		t.Errorf("a supervisor that everybody may write to: %v", err)
	}
}
