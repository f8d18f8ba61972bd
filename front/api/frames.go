package api

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
)

// frameQueue is how many pieces, of 32 KiB at most, wait for a slow reader.
const frameQueue = 16

// slowReader is how long in total a slow reader may hold up a run; after that, output is dropped
// and counted. Tests shorten it.
var slowReader = 10 * time.Second

// wantsFrames reports whether the caller asks for a stream.
func wantsFrames(r *http.Request) bool {
	for a := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if t, _, err := mime.ParseMediaType(a); err == nil && t == client.FrameType {
			return true
		}
	}
	return false
}

// sendFrames sends the frames that do makes, and last how it ended. An error before the first
// frame is an ordinary answer.
func (s *Server) sendFrames(
	w http.ResponseWriter, r *http.Request,
	do func(context.Context, *frames) (chat.RunResult, error),
) {
	leave, err := s.enterStream(r)
	defer leave()
	if err != nil {
		s.refuse(w, s.problem(r.Context(), err))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &frames{pieces: s.pieces(w, client.FrameType), gone: cancel}
	res, err := do(ctx, f)
	last := chat.Frame{Result: &res, DroppedBytes: f.finish()}
	switch {
	case err != nil && !f.begun:
		s.refuse(w, s.problem(r.Context(), err))
		return
	case err != nil:
		last = chat.Frame{Error: s.problem(r.Context(), err)}
	}
	f.send(last)
}

// frames is an answer with one chat.Frame in JSON a line.
type frames struct {
	pieces
	gone  context.CancelFunc // ends the run when its reader is gone
	queue chan chat.Frame    // nil until queued
	sent  chan struct{}

	mu      sync.Mutex
	patient time.Duration // what is left of slowReader
	dropped int64
}

// queued sends pieces of output from a queue, so that a run is not held up by each write.
func (f *frames) queued() {
	f.queue, f.sent, f.patient = make(chan chat.Frame, frameQueue), make(chan struct{}), slowReader
	go func() {
		defer close(f.sent)
		for frame := range f.queue {
			f.send(frame)
		}
	}()
}

// output queues a piece. It waits for room as long as the run may be held up, then drops the piece.
func (f *frames) output(stream string, p []byte) {
	frame := chat.NewFrame(stream, time.Now().UTC(), p)
	select {
	case f.queue <- frame:
		return
	default:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	began := time.Now()
	select {
	case f.queue <- frame:
	case <-time.After(f.patient):
		f.dropped += int64(len(p))
	}
	f.patient = max(0, f.patient-time.Since(began))
}

// started sends the run's id, by which it can be sent input and signals.
func (f *frames) started(run string) { f.queue <- chat.Frame{Run: run} }

// finish waits until all queued frames are sent, and returns how many bytes were dropped. output
// must not be called after it.
func (f *frames) finish() int64 {
	if f.queue != nil {
		close(f.queue)
		<-f.sent
	}
	return f.dropped
}

// send writes one line. A reader that is gone ends the run.
func (f *frames) send(frame chat.Frame) {
	if f.failed != nil {
		return
	}
	line, err := json.Marshal(frame)
	if err == nil {
		err = f.pieces.send(append(line, '\n'))
	}
	if err != nil {
		f.gone()
	}
}
