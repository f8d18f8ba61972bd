package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
)

// kind is the first byte of a packet.
type kind byte

const (
	// Front to root.
	newCall    kind = 'c' // on the control socket, with the root's end of a call
	request    kind = 'q' // a part of a request
	requestEnd kind = 'Q' // its last part
	end        kind = 'e' // all input of a run is written
	broken     kind = 'x' // a run's input could not be read to its end
	toolPart   kind = 'P' // a part of the front's message about a file tool
	toolSays   kind = 'p' // its last part
	ready      kind = 'y' // on the control socket: the front answers callers
	alive      kind = 'v' // on the control socket: the front has taken its settings
	// Root to front.
	settings  kind = 'h' // on the control socket
	streams   kind = 's' // the id of a run, with the descriptors of its two streams
	stdin     kind = 'i' // the id of a run, with the descriptor to write its standard input to
	stdinTTY  kind = 't' // the same for a run with a terminal, which reads frames
	tool      kind = 'o' // a file tool, with the descriptors of its input and output
	toolStop  kind = 'k' // the end of the tool
	framePart kind = 'F' // a part of one value of a stream
	frame     kind = 'f' // its last part
	answer    kind = 'a' // a part of an answer
	answerEnd kind = 'A' // its last part
	failed    kind = 'E' // the last part of a failure, in its place
)

// Bounds, in bytes and counts. A request is at most the API's largest, each byte escaped; an answer
// is at most a run's two streams, each byte escaped.
const (
	packetSize = 64 << 10
	maxRequest = 16 << 20
	maxAnswer  = 64 << 20
	maxCalls   = 4096
	// maxLarge bounds the requests of more than one packet that are read simultaneously.
	maxLarge = 8
	// maxLists bounds the pages of chats that exist simultaneously, maxUnread all answers: a front
	// that reads none holds its own calls up, and no more memory of chatd-root.
	maxLists  = 8
	maxUnread = 2 * maxAnswer
)

// message is a request.
type message struct {
	Verb   string          `json:"verb"`
	Caller chat.Caller     `json:"caller"`
	Chat   chat.ID         `json:"chat,omitempty"`
	Args   json.RawMessage `json:"args,omitempty"`
}

// args decodes the arguments.
func (m *message) args(into any) error { return decode(m.Args, into) }

// Settings are what chatd-root sends the front at its start and at each change.
type Settings struct {
	Version string `json:"version"`
	// Operators and Bridges are group ids.
	Operators  []uint32 `json:"operators"`
	Bridges    []uint32 `json:"bridges"`
	MaxFile    int64    `json:"max_file"`
	MaxStreams int      `json:"max_streams"`
	LogLevel   string   `json:"log_level"`
	// Settled: chatd-root has tried its walls, and schedules may begin.
	Settled bool `json:"settled"`
	// Grace is how long requests may take to finish when the front is told to end.
	Grace time.Duration `json:"grace_ns"`
}

// none stands for no arguments and for no answer.
type none = verbs.None

// encode encodes v as JSON without escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot write a message: %w", err)
	}
	return b.Bytes(), nil
}

// decode reads one JSON value and nothing else.
func decode(b []byte, into any) error {
	if err := chat.Strict(b, into); err != nil {
		return chat.Invalid("cannot read a message: %w", err)
	}
	return nil
}

// values decodes each frame of a stream and passes it to out.
func values[T any](out func(T) error) func(kind, []byte) error {
	var all []byte
	return func(k kind, p []byte) error {
		if all = append(all, p...); k != frame && len(all) < maxAnswer {
			return nil
		}
		var v T
		if err := decode(all, &v); err != nil {
			return err
		}
		all = all[:0]
		return out(v)
	}
}
