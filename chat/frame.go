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

// Output receives a run's output, piece by piece. Calls for the two streams may be concurrent, and
// must not keep p. Until a call returns chatd reads no more of the stream, so the run may block on
// its output.
type Output func(stream string, p []byte)

// Frame is one line of a streamed run: a piece of output, or the end.
type Frame struct {
	// Run is the run's id; it stands alone in the first frame.
	Run string `json:"run,omitempty"`
	// Cursor is the position after this frame, where the run's output is stored.
	Cursor string `json:"cursor,omitempty"`
	// Missing counts the bytes of the stream directly before this piece that are no longer stored.
	Missing int64 `json:"missing,omitempty"`
	// Stream is [Stdout] or [Stderr]; empty at the end. Time is when chatd read it.
	Stream string     `json:"stream,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
	// Text is the piece; Base64 replaces it if the piece is not UTF-8.
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	// Result is how the run ended, with empty streams. A stream without a last frame
	// that has a Result or an Error was cut off.
	Result *RunResult `json:"result,omitempty"`
	// DroppedBytes, beside Result, counts bytes that were not sent because the client read too
	// slowly.
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
	// Error says why there is no result, in the form of the API's problems.
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

// WholeRunes is the length of b without an incomplete UTF-8 character at its end. Bytes that are
// not UTF-8 are not cut.
func WholeRunes(b []byte) int {
	for i := len(b) - 1; i >= 0 && i > len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return i
			}
			break
		}
	}
	return len(b)
}

// InvalidBytes counts the bytes of p that are no UTF-8.
func InvalidBytes(p []byte) (n int64) {
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		p = p[size:]
	}
	return n
}
