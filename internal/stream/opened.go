package stream

import (
	"errors"
	"os"

	"github.com/chatd/chatd/chat"
)

// OpenRun is a run as it is at a moment, and of a background run the files of its output.
type OpenRun struct {
	Run chat.Run
	// Max is that of both files ([NewFile]).
	Max int64
	// Stdout and Stderr are nil for a run whose caller waits for it.
	Stdout, Stderr *os.File
}

// Close closes the files.
func (o OpenRun) Close() (err error) {
	for _, f := range []*os.File{o.Stdout, o.Stderr} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
