package exposure

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelNameWhileOthersRename: a chat that renames files all the time does not keep another
// from being woken whose profile grants a name of /sys with links in it.
func TestKernelNameWhileOthersRename(t *testing.T) {
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var over atomic.Bool
	ended := make(chan error, 2)
	for range 2 {
		a := filepath.Join(t.TempDir(), "a")
		if err := os.Mkdir(a, 0o700); err != nil {
			t.Fatal(err)
		}
		go func() {
			var err error
			for b := a + "b"; err == nil && !over.Load(); a, b = b, a {
				err = os.Rename(a, b)
			}
			ended <- err
		}()
	}
	for range 20_000 {
		fd, err := openKernelName(int(root.Fd()), "sys/class/net/lo")
		if err != nil {
			t.Error(err)
			break
		}
		unix.Close(fd)
	}
	over.Store(true)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
