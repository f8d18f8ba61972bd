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
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOnlyRootsProgramIsStarted: chatd starts no supervisor from a file that a user other than root
// may write to. The error says why.
func TestOnlyRootsProgramIsStarted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program")
	must.Do(t, errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o757)))
	r := New(Options{Dir: t.TempDir(), Shim: file}).newRun(About{})
	_, _, err := r.supervisorCommand(&exec.Cmd{}, &session.Stdio{}, &session.Files{})
	expect.True(t, errors.Is(err, chat.ErrUnsupported) && strings.Contains(err.Error(), "may write to it"),
		"a supervisor that everybody may write to: %v", err)
}
