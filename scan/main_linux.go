package scan

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// progressEvery is how often a turn says where it is.
const progressEvery = 2 * time.Second

// Main is the mode "scan" of chatd-shim: one turn. It reads a Request from standard input and
// writes lines to standard output; the end of its input ends it. It returns the exit code.
func Main() int {
	runtime.LockOSThread() // priorities are those of a thread
	nameThread("chatd-scan")
	in := json.NewDecoder(os.Stdin)
	var req Request
	if err := in.Decode(&req); err != nil {
		return 2
	}
	out := &output{w: bufio.NewWriter(os.Stdout)}
	if err := out.say(Line{End: turn(req, out)}); err != nil {
		return 1
	}
	return 0
}

func turn(req Request, out *output) *End {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return &End{Error: fmt.Sprintf("cannot read the mounts: %v", err)}
	}
	mounts, err := sys.ParseMounts(string(text))
	if err != nil {
		return &End{Error: err.Error()}
	}
	missing, err := confine()
	if err != nil {
		return &End{Error: err.Error()}
	}
	w := newWalk(req, out.say)
	go endWithParent()
	go func() {
		for range time.Tick(progressEvery) {
			if at := w.at.Load(); at != nil {
				_ = out.say(Line{At: at}) // if nobody reads, the walk ends with its next find
			}
		}
	}()
	end := w.all(localMounts(mounts, req.Under))
	end.Missing = missing
	return &end
}

// nameThread sets what ps(1) shows; the kernel's choice is the number of a descriptor.
func nameThread(name string) {
	if b, err := unix.ByteSliceFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&b[0])), 0, 0, 0)
	}
}

// endWithParent ends the process when chatd-root has: then nobody holds the other end.
func endWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// output writes lines; the walk and its progress share it.
type output struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func (o *output) say(l Line) error {
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
