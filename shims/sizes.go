package shims

import (
	_ "embed"
	"fmt"
	"runtime"
	"strconv"
)

// sizeEnv tells runtimes what the chat may use. They size heaps and pools of workers by the host
// otherwise, and the kernel kills them where they would have collected garbage (adrs/0106).
//
// A heap is three quarters of the memory, as Node's manual advises: the process has more than its
// heap. Node's young generation, 48 MiB of it, comes on top of the old space. A JVM takes a part of
// MaxRAM itself. nproc(1) obeys OMP_NUM_THREADS.
func (v View) sizeEnv() []string {
	if v.Limits.MemoryMax == 0 || v.Limits.CPUPeriod <= 0 {
		return nil
	}
	memory := v.Limits.MemoryMax
	quota := (v.Limits.CPUQuota + v.Limits.CPUPeriod - 1) / v.Limits.CPUPeriod
	cpus := strconv.Itoa(min(int(quota), runtime.NumCPU()))
	return []string{
		"NODE_OPTIONS=--max-old-space-size=" + strconv.FormatUint((memory/4*3-min(48<<20, memory/4))>>20, 10) + " --require=" + InsideNode,
		fmt.Sprintf("JAVA_TOOL_OPTIONS=-XX:MaxRAM=%d -XX:ActiveProcessorCount=%s", memory, cpus),
		"GOMEMLIMIT=" + strconv.FormatUint(memory/4*3, 10), "GOMAXPROCS=" + cpus,
		"OMP_NUM_THREADS=" + cpus, "CARGO_BUILD_JOBS=" + cpus, "PYTHON_CPU_COUNT=" + cpus,
		"PYTEST_XDIST_AUTO_NUM_WORKERS=" + cpus,
	}
}

// InsideNode is a script that each Node of a session reads first: see node.js beside this file.
const InsideNode = InsideDir + "/node.js"

//go:embed node.js
var nodeScript []byte
