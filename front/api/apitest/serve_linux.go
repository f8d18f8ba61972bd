package apitest

import (
	"errors"
	"os"

	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/shims/files"
)

// serve starts a tool, and sets its streams. served is closed when it has ended.
func serve(s *filewire.LiveTool, t *tool) (served chan struct{}, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, inR.Close(), inW.Close())
	}
	s.In, s.Out = inW, outR
	served = make(chan struct{})
	go func() {
		defer close(served)
		// The test may have closed its ends before.
		_ = errors.Join(files.Serve(inR, outW, t), inR.Close(), outW.Close())
	}()
	return served, nil
}
