package plan

import (
	_ "embed"
	"fmt"
	"runtime"
	"strconv"

	"github.com/chatd/chatd/chat"
)

// sizeEnv tells runtimes what the chat may use. They size heaps and pools of workers by the host
// otherwise, and the kernel kills them where they would have collected garbage (adrs/0106).
//
// A heap is three quarters of the memory, as Node's manual advises: the process has more than its
// heap. Node's young generation, 48 MiB of it, comes on top of the old space. A JVM takes a part of
// MaxRAM itself. nproc(1) obeys OMP_NUM_THREADS.
func (v View) sizeEnv() []string {
	if !v.isSized() {
		return nil
	}
	memory, cpus := v.Limits.MemoryMax, strconv.Itoa(v.cpus())
	heap := memory/4*3 - min(48<<20, memory/4)
	return []string{
		"NODE_OPTIONS=--max-old-space-size=" + strconv.FormatUint(heap>>20, 10) + " --require=" + InsideNode,
		fmt.Sprintf("JAVA_TOOL_OPTIONS=-XX:MaxRAM=%d -XX:ActiveProcessorCount=%s", memory, cpus),
		"GOMEMLIMIT=" + strconv.FormatUint(memory/4*3, 10), "GOMAXPROCS=" + cpus,
		"OMP_NUM_THREADS=" + cpus, "CARGO_BUILD_JOBS=" + cpus, "PYTHON_CPU_COUNT=" + cpus,
		"PYTEST_XDIST_AUTO_NUM_WORKERS=" + cpus,
	}
}

func (v View) isSized() bool { return v.Limits.MemoryMax != 0 && v.Limits.CPUPeriod > 0 }

// cpus is the chat's quota in whole CPUs.
func (v View) cpus() int {
	return min(int((v.Limits.CPUQuota+v.Limits.CPUPeriod-1)/v.Limits.CPUPeriod), runtime.NumCPU())
}

// onlineCPUs is what glibc's sysconf(3) and os.cpu_count() of Python read.
const onlineCPUs = "/sys/devices/system/cpu/online"

// sizeFiles are files of the kernel that have the chat's limits in place of the host's figures. They
// are as they were when the session began, and name no use: proc_meminfo(5).
func (v View) sizeFiles() []DataFile {
	if !v.isSized() || v.LeavesOut(chat.LayerProc) {
		return nil
	}
	cpus := "0"
	if n := v.cpus(); n > 1 {
		cpus = "0-" + strconv.Itoa(n-1)
	}
	total := v.Limits.MemoryMax >> 10
	memory := fmt.Sprintf("MemTotal: %15d kB\nMemFree: %16d kB\nMemAvailable: %11d kB\n", total, total, total)
	for _, name := range []string{"Buffers", "Cached", "SwapCached", "SwapTotal", "SwapFree", "Shmem",
		"SReclaimable"} {
		memory += fmt.Sprintf("%-16s %8d kB\n", name+":", 0)
	}
	return []DataFile{
		{Target: "/proc/meminfo", Content: []byte(memory)},
		{Target: onlineCPUs, Content: []byte(cpus + "\n")},
	}
}

// InsideNode is a script that each Node of a session reads first: see node.js beside this file.
const InsideNode = InsideDir + "/node.js"

//go:embed node.js
var nodeScript []byte
