package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// The descriptors of a minder, after the three that are the run's own.
const (
	fdSpec = 3 + iota
	fdReady
	fdOrders
	fdStdin
	fdStdoutPipe
	fdStderrPipe
	fdStdoutFile
	fdStderrFile
	fdEnd
	fdKill
	fdFirst // the command's own come from here on, where they begin at 3
)

// Files are what a minder is given, in the order of its descriptors.
type Files struct {
	// Spec holds a [Spec] in JSON, Ready is where [Ready] goes.
	Spec, Ready *os.File
	// Orders is a fifo, open for reading and writing: see [OrderGo].
	Orders *os.File
	// Stdin is the write end of the run's standard input; nil where it has none that is open.
	Stdin *os.File
	// StdoutPipe and StderrPipe are the read ends of the run's output.
	StdoutPipe, StderrPipe *os.File
	// StdoutFile and StderrFile are for a [stream.File] each, End is for [End].
	StdoutFile, StderrFile, End *os.File
	// Kill is the leaf's cgroup.kill.
	Kill *os.File
}

// All are the files in the order of their descriptors, with none in the place of a file that is not
// there.
func (f Files) All(none *os.File) []*os.File {
	all := []*os.File{f.Spec, f.Ready, f.Orders, f.Stdin, f.StdoutPipe, f.StderrPipe, f.StdoutFile, f.StderrFile, f.End, f.Kill}
	for i, one := range all {
		if one == nil {
			all[i] = none
		}
	}
	return all
}

// Spec says what a minder starts and what it becomes then.
type Spec struct {
	// Path and Argv are the command, which begins with the minder's descriptors 0, 1 and 2, and
	// after them Files more.
	Path  string   `json:"path"`
	Argv  []string `json:"argv"`
	Files int      `json:"files"`
	// UID is what the minder becomes, with the gid of the same number.
	UID uint32 `json:"uid"`
	// Deadline is when the command's time is over and chatd begins to end it.
	Deadline time.Time `json:"deadline"`
	// Last is when it ends the run, should nobody else have done so.
	Last time.Time `json:"last"`
	// OutputMax is that of each [stream.File]; an older chatd says none.
	OutputMax int64 `json:"output_max,omitempty"`
	// OpenStdin: Files.Stdin is there.
	OpenStdin bool `json:"open_stdin,omitempty"`
}

// Ready is what a minder says once the command is on its way.
type Ready struct {
	// PID is the command's, which is nsenter.
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// The orders, of one byte each.
const (
	// OrderGo: the minder is out of the leaf, and may end it.
	OrderGo = 'g'
	// OrderClose closes the run's standard input.
	OrderClose = 'c'
)

// End is how a run ended.
type End struct {
	// Status is the command's, as wait(2) has it.
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
	// TimedOut: the command was still there when its time was over, whoever ended it then.
	TimedOut bool `json:"timed_out,omitempty"`
	// Tail is the end of standard output, at most [MaxTail] bytes.
	Tail []byte `json:"tail,omitempty"`
}

// MaxTail bounds [End].Tail.
const MaxTail = 4 << 10

// maxSpec bounds a spec and an end, in bytes.
const maxSpec = 64 << 10

func readSpec(r io.Reader) (s Spec, err error) {
	if err := json.NewDecoder(io.LimitReader(r, maxSpec)).Decode(&s); err != nil {
		return s, fmt.Errorf("cannot read what to mind: %w", err)
	}
	return s, nil
}

// ReadEnd reads what a minder wrote; ok is false when it has written nothing, or half of it.
func ReadEnd(r io.Reader) (e End, ok bool) {
	err := json.NewDecoder(io.LimitReader(r, maxSpec)).Decode(&e)
	return e, err == nil && !e.At.IsZero()
}
