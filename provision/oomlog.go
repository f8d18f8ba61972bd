package provision

import (
	"os"
	"strings"
)

// oomDumpTasks is the setting by which each OOM kill lists the tasks of its cgroup in the kernel's
// log (vm.oom_dump_tasks of the kernel's sysctl/vm.rst).
const oomDumpTasks = "/proc/sys/vm/oom_dump_tasks"

// oomLogFinding: a chat can run out of memory as often as it likes, and the kernel's log is one
// for the whole host. With the lists of tasks it takes up to 20 kB each time, and a few dozen
// roll it over; without, about 3 kB, at most ten in five seconds.
func oomLogFinding(setting string) []string {
	b, err := os.ReadFile(setting)
	if err != nil || strings.TrimSpace(string(b)) == "0" {
		return nil
	}
	return []string{"chats that run out of memory can roll the kernel's log over, for it lists all their tasks each time: sysctl -w vm.oom_dump_tasks=0"}
}
