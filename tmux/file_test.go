package tmux

import (
	"os"
	"testing"

	"github.com/chatd/chatd/test/must"
)

func writeFile(t *testing.T, name string, content []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(name, content, 0o600))
}
