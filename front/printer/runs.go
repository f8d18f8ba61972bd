package printer

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
)

// Runs is a line for each run.
func Runs(runs []chat.Run) string {
	return list([]string{"RUN", "STATE", "STARTED", "COMMAND"}, runs, func(r chat.Run) []string {
		return []string{r.ID, runState(r), r.StartedAt.Local().Format(zoned), r.Command}
	})
}

// runState is a run's state in a few words.
func runState(r chat.Run) string {
	switch {
	case r.State != chat.RunEnded || r.Result == nil:
		return string(r.State)
	case r.Result.EndedBy != "":
		return endedWord(r.Result.EndedBy)
	case r.Result.Signal != "":
		return "ended by " + r.Result.Signal
	}
	return fmt.Sprintf("exit code %d", r.Result.Exit)
}

// endedWord is what ended a run, in a few words.
func endedWord(by chat.EndedBy) string {
	if by == chat.EndedByMemory {
		return "ended: out of memory"
	}
	return "ended by " + string(by)
}

// Run is what became of a run, on errOut, and what is kept of its two streams, on each its own.
func Run(out, errOut io.Writer, r chat.Run) error {
	fmt.Fprintf(errOut, "chatd: %s: %s\n", Cell(r.ID), Cell(runState(r)))
	if r.Result == nil {
		return nil
	}
	reasons(errOut, r.Result.Reasons())
	if n := r.Result.StdoutReplaced + r.Result.StderrReplaced; n > 0 {
		fmt.Fprintf(errOut,
			"chatd: %d bytes are no UTF-8 and shown as U+FFFD; -f prints them as they are\n", n)
	}
	if err := ChatText(out, r.Result.Stdout); err != nil {
		return err
	}
	return ChatText(errOut, r.Result.Stderr)
}

// RunEnd is why a run that was followed ended, where its exit code does not say it. An error of
// errOut must not stand in the place of that code, and is ignored.
func RunEnd(errOut io.Writer, res chat.RunResult) {
	if res.Truncated {
		fmt.Fprintln(errOut, "chatd: output truncated: the client read too slowly")
	}
	reasons(errOut, res.Reasons())
	if !res.TimedOut && res.Signal != "" && res.EndedBy == "" {
		fmt.Fprintf(errOut, "chatd: the run was ended by %s\n", Escape(res.Signal))
	}
}

func reasons(errOut io.Writer, why []string) {
	for _, text := range why {
		fmt.Fprintln(errOut, "chatd: "+Escape(text))
	}
}

// Processes is a line for each process of a chat.
func Processes(all []chat.Process) string {
	head := []string{"PID", "STATE", "MEMORY", "CPU", "RUN", "NAME"}
	return list(head, all, func(p chat.Process) []string {
		return []string{fmt.Sprint(p.PID), string(p.State), size(p.MemoryBytes), p.CPU.String(),
			dash(p.Run), p.Name}
	})
}
