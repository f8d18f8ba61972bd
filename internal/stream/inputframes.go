package stream

import (
	"encoding/binary"
	"io"
	"os"
)

// The standard input of "chatd-shim pty" is frames: a letter, a length of two bytes, and this many
// bytes. These are the letters.
const (
	FrameText = 't' // goes to the terminal
	FrameSize = 's' // its size: rows and columns, two bytes each
	FrameEnd  = 'e' // there is no more input
)

// FrameMax bounds a frame's bytes, so that its write to a pipe is atomic (PIPE_BUF, pipe(7)).
const FrameMax = 4093

func inputFrame(kind byte, p []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(p))), p...)
}

// SizeFrame tells the terminal of a run its size.
func SizeFrame(rows, cols int) []byte {
	return inputFrame(FrameSize,
		binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(rows)), uint16(cols)))
}

// EndFrame tells the terminal of a run that there is no more input.
func EndFrame() []byte { return inputFrame(FrameEnd, nil) }

// Input is the write end of a run's standard input. Its receiver closes it.
type Input struct {
	W *os.File
	// Framed: the run has a terminal and reads frames, see [InputFrames].
	Framed bool
}

// InputFrames returns a writer that writes its input to w as text frames.
func InputFrames(w io.Writer) io.Writer { return &inputFrames{w} }

type inputFrames struct{ w io.Writer }

func (f *inputFrames) Write(p []byte) (n int, err error) {
	for len(p) > 0 {
		m := min(len(p), FrameMax)
		if _, err := f.w.Write(inputFrame(FrameText, p[:m])); err != nil {
			return n, err
		}
		n, p = n+m, p[m:]
	}
	return n, nil
}
