package client

import "github.com/chatd/chatd/chat"

// The media types of the API.
const (
	JSONType    = "application/json"
	ProblemType = "application/problem+json"
	// PatchType is that of PATCH (RFC 7396); plain JSON is accepted as well.
	PatchType = "application/merge-patch+json"
	// ByteType is that of every file's content.
	ByteType = "application/octet-stream"
	// FrameType is that of a streamed run: one [chat.Frame] in JSON a line.
	FrameType = "application/x-ndjson"
	// EventType is that of a followed log: server-sent events, each with a [chat.Log] in JSON as data
	// and the next cursor as id, so that Last-Event-ID resumes after a broken connection. A comment is
	// sent when nothing is new.
	EventType = "text/event-stream"
)

// ProblemEvent is the event that says why a stream ended.
const ProblemEvent = "problem"

// Names of a stream's header and trailer fields.
const (
	SizeHeader    = "Chatd-File-Size" // of the whole file
	AnswerTrailer = "Chatd-Answer"    // a FileAnswer in JSON, ASCII
)

// Bounds on what the client reads, in bytes.
const (
	// maxAnswer is for one answer: two streams of a run, of [chat.MaxOutputMax] each, may take six
	// times that in JSON, a page of chats less.
	maxAnswer = 64 << 20
	// maxFrame is for a line of a stream: a piece of 32 KiB in base64, or in JSON with every byte
	// escaped, or a problem.
	maxFrame = 1 << 20
	// maxEvent is for a line of an event.
	maxEvent = 8 * chat.MaxLogPage
)
