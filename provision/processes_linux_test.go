package provision

import (
	"os"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestProcessesAreBounded: no more are read than a list may have, and the rest is counted.
func TestProcessesAreBounded(t *testing.T) {
	own, uid := os.Getpid(), uint32(os.Getuid())
	runs := map[int]string{own: "run-1"}
	got, err := readProcesses(runs, uid)
	if err != nil || len(got.Processes) != 1 || got.Processes[0].Run != "run-1" || got.LeftOut != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := readProcesses(runs, uid+1); err != nil || len(got.Processes) != 0 {
		t.Errorf("of another uid: %+v, %v", got, err)
	}
	delete(runs, own)
	const beyond = 1 << 22 // more than any pid (pid_max of proc(5))
	for i := range chat.MaxProcesses + 5 {
		runs[beyond+i] = ""
	}
	if got, err := readProcesses(runs, uid); err != nil || len(got.Processes) != 0 || got.LeftOut != 5 {
		t.Errorf("too many: %+v, %v", got, err)
	}
}
