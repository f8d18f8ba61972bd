package chat

import (
	"time"
	"unicode/utf8"
)

// The streams of a run.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Output takes what a run prints, piece by piece, as it comes. It may be called for
// both streams at once, and must not keep p. As long as it does not return the run is
// not read, and may be blocked by its own output.
type Output func(stream string, p []byte)

// Frame is one line of a run that is streamed: a piece of output, or the end.
type Frame struct {
	// Run is the run's id; it stands alone in the first frame.
	Run string `json:"run,omitempty"`
	// Cursor, where a run is read that is kept, is the place behind this frame.
	Cursor string `json:"cursor,omitempty"`
	// Missing is how many bytes of the stream right before this piece are not kept.
	Missing int64 `json:"missing,omitempty"`
	// Stream is [Stdout] or [Stderr]; empty at the end. Time is when chatd read it.
	Stream string     `json:"stream,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
	// Text is the piece, or Base64 where it is no UTF-8.
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Result is how the run ended, with empty streams. A stream without a last frame
	// that has a Result or an Error was cut off.
	Result *RunResult `json:"result,omitempty"`
	// DroppedBytes, beside Result, were not sent, for they were not taken in time.
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
	// Error is why there is no result: a problem as any other answer has.
	Error any `json:"error,omitempty"`
}

// NewFrame makes a frame of a piece of output.
func NewFrame(stream string, at time.Time, p []byte) Frame {
	f := Frame{Stream: stream, Time: &at}
	if utf8.Valid(p) {
		f.Text = string(p)
	} else {
		f.Base64 = append([]byte{}, p...)
	}
	return f
}

// Bytes is the piece of output.
func (f Frame) Bytes() []byte {
	if f.Base64 != nil {
		return f.Base64
	}
	return []byte(f.Text)
}
