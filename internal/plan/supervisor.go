package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// The descriptors of a supervisor, after the three that are the run's own.
const (
	FDSpec = 3 + iota
	FDReady
	FDOrders
	FDStdin
	FDStdoutPipe
	FDStderrPipe
	FDStdoutFile
	FDStderrFile
	FDEnd
	FDKill
	FDFirst // the command's own come from here on, where they begin at 3
)

// SupervisorFiles are the files of a supervisor, in the order of its descriptors.
type SupervisorFiles struct {
	// Spec holds a [SupervisorSpec] in JSON; the supervisor writes a [SupervisorReady] to Ready.
	Spec, Ready *os.File
	// Orders is a fifo, open for reading and writing: see [OrderGo].
	Orders *os.File
	// Stdin is the write end of the run's standard input; nil if that is not open.
	Stdin *os.File
	// StdoutPipe and StderrPipe are the read ends of the run's output.
	StdoutPipe, StderrPipe *os.File
	// StdoutFile and StderrFile take a [stream.File] each, End takes an [SupervisorEnd].
	StdoutFile, StderrFile, End *os.File
	// Kill is the leaf's cgroup.kill.
	Kill *os.File
}

// All are the files in the order of their descriptors, with none in place of each that is nil.
func (f SupervisorFiles) All(none *os.File) []*os.File {
	all := []*os.File{
		f.Spec, f.Ready, f.Orders, f.Stdin, f.StdoutPipe, f.StderrPipe, f.StdoutFile, f.StderrFile,
		f.End, f.Kill,
	}
	for i, one := range all {
		if one == nil {
			all[i] = none
		}
	}
	return all
}

// SupervisorSpec is the command of a supervisor, with its bounds and the supervisor's later uid.
type SupervisorSpec struct {
	// Path and Argv are the command, which begins with the supervisor's descriptors 0, 1 and 2, and
	// after them Files more.
	Path  string   `json:"path"`
	Argv  []string `json:"argv"`
	Files int      `json:"files"`
	// UID is the supervisor's uid and gid once the command runs.
	UID uint32 `json:"uid"`
	// Deadline is when the command's time is over and chatd begins to end it.
	Deadline time.Time `json:"deadline"`
	// Last is when the supervisor ends the run, unless chatd has.
	Last time.Time `json:"last"`
	// OutputMax is that of each [stream.File].
	OutputMax int64 `json:"output_max,omitempty"`
	// OpenStdin: Files.Stdin is set.
	OpenStdin bool `json:"open_stdin,omitempty"`
}

// SupervisorReady is a supervisor's report once the command has started, or has failed to.
type SupervisorReady struct {
	// PID is the command's, which is nsenter.
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// The orders, of one byte each.
const (
	// OrderGo: the supervisor is out of the leaf, and may end it.
	OrderGo = 'g'
	// OrderClose closes the run's standard input.
	OrderClose = 'c'
)

// SupervisorEnd is how a run ended.
type SupervisorEnd struct {
	// Status is the command's, as wait(2) has it.
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
	// TimedOut: the command outlived its deadline, even if chatd ended it then.
	TimedOut bool `json:"timed_out,omitempty"`
	// Tail is the end of standard output, at most [MaxTail] bytes.
	Tail []byte `json:"tail,omitempty"`
}

// MaxTail bounds [SupervisorEnd].Tail.
const MaxTail = 4 << 10

// maxSpec bounds a spec and an end, in bytes.
const maxSpec = 64 << 10

// ReadSupervisorSpec reads what chatd-root wrote for a supervisor.
func ReadSupervisorSpec(r io.Reader) (s SupervisorSpec, err error) {
	if err := json.NewDecoder(io.LimitReader(r, maxSpec)).Decode(&s); err != nil {
		return s, fmt.Errorf("cannot read the spec: %w", err)
	}
	return s, nil
}

// ReadSupervisorEnd reads a supervisor's [SupervisorEnd]; ok is false if it is missing or incomplete.
func ReadSupervisorEnd(r io.Reader) (e SupervisorEnd, ok bool) {
	err := json.NewDecoder(io.LimitReader(r, maxSpec)).Decode(&e)
	return e, err == nil && !e.At.IsZero()
}
