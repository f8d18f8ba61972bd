package cgroup

import (
	"os"
	"strings"
)

// OOMDumpTasks is the setting with which each OOM kill lists the tasks of its cgroup in the
// kernel's log (vm.oom_dump_tasks of the kernel's sysctl/vm.rst).
const OOMDumpTasks = "/proc/sys/vm/oom_dump_tasks"

// OOMLogFinding warns if OOM kills list tasks. A chat can cause any number of OOM kills, and the
// whole host shares the kernel's log. Each takes up to 20 kB of it with the lists, and a few dozen
// roll it over. Without them it is about 3 kB, at most ten times in five seconds.
func OOMLogFinding(setting string) []string {
	b, err := os.ReadFile(setting)
	if err != nil || strings.TrimSpace(string(b)) == "0" {
		return nil
	}
	return []string{"chats that run out of memory can roll the kernel's log over, for it lists all their tasks each time: sysctl -w vm.oom_dump_tasks=0"}
}
