package chat

// MaxProcesses is how many processes of a chat are listed.
const MaxProcesses = 1024

// Process is one process in a chat's session. It is what the kernel counts, but for its name.
type Process struct {
	// PID is the process's number as the chat sees it.
	PID int `json:"pid"`
	// Name is the command's name as ps(1) shows it. The process chooses it: up to 15 bytes of any
	// kind.
	Name  string       `json:"name"`
	State ProcessState `json:"state"`
	// MemoryBytes is the memory that is resident. What processes share is counted for each.
	MemoryBytes uint64 `json:"memory_bytes"`
	// CPU is the CPU time that its threads have taken.
	CPU Duration `json:"cpu"`
	// Run is the run that it belongs to; empty is the terminal's session. A file tool has a run of
	// its own, which is not among [Runs].
	Run string `json:"run,omitempty"`
}

// ProcessState is what a process does.
type ProcessState string

// The states of a process.
const (
	ProcessRunning  ProcessState = "running"
	ProcessSleeping ProcessState = "sleeping"
	// ProcessBlocked: it waits in the kernel, and no signal ends that.
	ProcessBlocked ProcessState = "blocked"
	ProcessStopped ProcessState = "stopped"
	// ProcessEnded: its parent has not asked yet how it ended.
	ProcessEnded ProcessState = "ended"
)

// Processes are the processes of a chat, by number.
type Processes struct {
	Processes []Process `json:"processes"`
	// LeftOut is how many there are beyond [MaxProcesses].
	LeftOut int `json:"left_out,omitempty"`
}
