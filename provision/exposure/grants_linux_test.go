package exposure

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestKernelNameWhileOthersRename: a chat that renames files all the time does not keep another
// from being woken whose profile grants a name of /sys with links in it.
func TestKernelNameWhileOthersRename(t *testing.T) {
	root := must.Get(os.Open("/"))(t)
	defer root.Close()
	var over atomic.Bool
	ended := make(chan error, 2)
	for range 2 {
		a := filepath.Join(t.TempDir(), "a")
		must.Do(t, os.Mkdir(a, 0o700))
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
		expect.NoError(t, <-ended)
	}
}
