package sys

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestCollectOrphansOfRoot: an orphan in a pid namespace is reaped though it is still root's, and
// root's child outside is left to its waiter.
func TestCollectOrphansOfRoot(t *testing.T) {
	needsRoot(t)
	must.Do(t, BecomeSubreaper())
	outer := exec.Command("unshare", "--pid", "--fork", "sleep", "1000")
	must.Do(t, outer.Start())
	inner := 0
	for end := time.Now().Add(time.Minute); inner == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(outer.Process.Pid) + "/task/" + strconv.Itoa(outer.Process.Pid) + "/children")
		inner, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	mine := exec.Command("sh", "-c", "echo up; exec cat")
	in, _ := mine.StdinPipe()
	out, _ := mine.StdoutPipe()
	must.Do(t, mine.Start())
	_, _ = bufio.NewReader(out).ReadString('\n')
	_ = outer.Process.Kill()
	_ = outer.Wait()
	_ = unix.Kill(inner, unix.SIGKILL)
	_ = in.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if isZombie(inner) && isZombie(mine.Process.Pid) {
			break
		}
	}
	expect.NoError(t, CollectOrphans(4242))
	expect.True(t, !isZombie(inner), "the orphan in the namespace is not collected")
	if err := mine.Wait(); err != nil {
		t.Errorf("the child outside was taken from who waits for it: %v", err)
	}
}
