package chat

// MaxProcesses is how many processes of a chat are listed.
const MaxProcesses = 1024

// Process is one process in a chat's session. Everything but the name is the kernel's own count.
type Process struct {
	// PID is the process's number as the chat sees it.
	PID int `json:"pid"`
	// Name is the command's name as ps(1) shows it. The process chooses it: up to 15 bytes of any
	// kind.
	Name  string       `json:"name"`
	State ProcessState `json:"state"`
	// MemoryBytes is the resident memory. Shared pages are counted for each process.
	MemoryBytes uint64 `json:"memory_bytes"`
	// CPU is the CPU time that its threads have taken.
	CPU Duration `json:"cpu"`
	// Run is the run that it belongs to; empty means the terminal's session. A file tool has a run
	// of its own, which is not among [Runs].
	Run string `json:"run,omitempty"`
}

// ProcessState is the scheduling state of a process.
type ProcessState string

// The states of a process.
const (
	ProcessRunning  ProcessState = "running"
	ProcessSleeping ProcessState = "sleeping"
	// ProcessBlocked: it waits in the kernel and cannot be interrupted by signals.
	ProcessBlocked ProcessState = "blocked"
	ProcessStopped ProcessState = "stopped"
	// ProcessEnded: it has exited, and its parent has not waited for it (a zombie).
	ProcessEnded ProcessState = "ended"
)

// Processes are the processes of a chat, by number.
type Processes struct {
	Processes []Process `json:"processes"`
	// LeftOut counts the processes beyond [MaxProcesses].
	LeftOut int `json:"left_out,omitempty"`
}
