package scan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/sys"
)

// progressEvery is how often a walk says where it is.
const progressEvery = time.Second

// Main is the mode "scan" of chatd-shim. It reads a [chat.StrayRequest] from standard input and
// writes lines to standard output; the end of its input ends it. It returns the exit code.
func Main() int {
	runtime.LockOSThread() // priorities are those of a thread
	nameThread("chatd-scan")
	in := json.NewDecoder(os.Stdin)
	var req chat.StrayRequest
	if err := in.Decode(&req); err != nil {
		return 2
	}
	out := &output{w: bufio.NewWriter(os.Stdout)}
	if err := out.say(chat.StrayLine{End: search(req, out)}); err != nil {
		return 1
	}
	return 0
}

func search(req chat.StrayRequest, out *output) *chat.StrayEnd {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &chat.StrayEnd{Error: fmt.Sprintf("cannot read the mounts: %v", err)}
	}
	mounts, err := sys.ParseMounts(string(text))
	if err != nil {
		return &chat.StrayEnd{Error: err.Error()}
	}
	missing, err := confine()
	if err != nil {
		return &chat.StrayEnd{Error: err.Error()}
	}
	w := newWalk(req, out.say)
	go endWithParent()
	go func() {
		for range time.Tick(progressEvery) {
			if at := w.at.Load(); at != nil {
				_ = out.say(chat.StrayLine{At: *at}) // if nobody reads, the walk ends with its next find
			}
		}
	}()
	end := w.all(localMounts(mounts, req.Under))
	end.Missing = strings.Join(missing, ", ")
	return &end
}

// nameThread sets what ps(1) shows; the kernel's choice is the number of a descriptor.
func nameThread(name string) {
	if b, err := unix.ByteSliceFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
	}
}

// endWithParent ends the process when its caller has: then nobody holds the other end.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// output writes lines; the walk and its progress share it.
type output struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func (o *output) say(l chat.StrayLine) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return errors.Join(json.NewEncoder(o.w).Encode(l), o.w.Flush())
}

// lowestPriority gives this thread the idle classes of CPU and disk (sched(7), ioprio_set(2)).
func lowestPriority() error {
	const whoProcess, idleClass = 1, 3 << 13
	_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, 0, idleClass)
	if errno != 0 {
		return fmt.Errorf("cannot lower the priority of reading: %w", errno)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		return fmt.Errorf("cannot lower the priority: %w", err)
	}
	return nil
}
