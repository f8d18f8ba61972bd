package filewire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The wire between chatd and the tools:
//
//	request = line                         and more, where the tool says what it waits for
//	answer  = *waits line                  a tool without content, or a failure
//	        | *waits line chunks line      "content": true in the first; the second counts
//	waits   = line                         "links": where the request's names lead, before all else
//	        | line                         "send": the content, as chunks
//	line    = one JSON object and LF
//	chunks  = *( length bytes ) 00000000   length: four bytes, big-endian, 1 to maxChunk
//
// Content that ends without its zero was cut off, and is discarded.
//
// The tools check the rules themselves, and ask for the content after that.

// maxChunk bounds a chunk; MaxLine and MaxSaid a line to and from the tool, in
// which JSON may write a byte as six.
const (
	maxChunk = 256 << 10
	MaxLine  = 6*MaxText + 6*MaxNames + (64 << 10)
	MaxSaid  = 6*MaxDiff + (256 << 10)
)

// Request is one call, in the form of the examples of PicoClaw's documentation.
type Request struct {
	Tool       Tool            `json:"tool"`
	Parameters json.RawMessage `json:"parameters"`
	// Links are names whose targets [ResolveTool] reports.
	Links []string `json:"links,omitempty"`
}

// Message is a line of the tool: what it waits for, or an answer.
type Message struct {
	Links []Link `json:"links,omitempty"`
	Send  bool   `json:"send,omitempty"`
	Answer
}

// NewRequest is the request of a tool with its arguments, one of [ReadFile],
// [WriteFile], [EditFile], [ListDir] and [Resolve].
func NewRequest(tool Tool, args interface{ Validate() error }) (Request, error) {
	if err := args.Validate(); err != nil {
		return Request{}, err
	}
	p, err := json.Marshal(args)
	if err != nil {
		return Request{}, fmt.Errorf("cannot encode the arguments of %s: %w", tool, err)
	}
	return Request{Tool: tool, Parameters: p}, nil
}

// Send sends a tool its request; [Speak] goes on. The request may be longer than a pipe holds.
func Send(w io.Writer, req Request) error {
	if err := checkNames(req.Links); err != nil {
		return err
	}
	return WriteLine(w, req)
}

// ReadLine reads one line of at most limit bytes, without its end.
func ReadLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("a line of more than %d bytes", limit)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}

// WriteLine writes v as one line of JSON.
func WriteLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// Decode reads one JSON object strictly into v: no unknown or second object, and no text that would
// change in decoding.
func Decode(data []byte, v any) error {
	if !utf8.Valid(data) {
		return errors.New("not valid UTF-8")
	}
	if loneSurrogate(data) {
		return errors.New("half a surrogate pair, which is no character")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON object")
	}
	return nil
}

// loneSurrogate finds a \uD800–\uDFFF without its other half, which encoding/json
// would silently replace by U+FFFD.
func loneSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		switch hi := surrogate(data[i:]); {
		case hi == 0:
			i++ // the escaped byte does not begin another escape
		case hi < 0xDC00 && surrogate(data[i+6:]) >= 0xDC00:
			i += 11
		default:
			return true
		}
	}
	return false
}

// surrogate is the half that an escape at the beginning of data stands for, or 0.
func surrogate(data []byte) int {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil || n < 0xD800 || n > 0xDFFF {
		return 0
	}
	return int(n)
}

// ChunkWriter writes content as chunks.
type ChunkWriter struct{ w io.Writer }

// NewChunkWriter writes chunks to w.
func NewChunkWriter(w io.Writer) ChunkWriter { return ChunkWriter{w} }

// Write writes p as chunks of at most maxChunk.
func (c ChunkWriter) Write(p []byte) (int, error) {
	done := 0
	for part := range slices.Chunk(p, maxChunk) {
		if err := c.length(len(part)); err != nil {
			return done, err
		}
		n, err := c.w.Write(part)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (c ChunkWriter) length(n int) error { return binary.Write(c.w, binary.BigEndian, uint32(n)) }

// End writes the zero that ends the content.
func (c ChunkWriter) End() error { return c.length(0) }

// chunkReader is what [NewChunkReader] returns.
type chunkReader struct {
	r    *bufio.Reader
	left int
	err  error
}

// NewChunkReader reads what a [ChunkWriter] wrote, up to its zero: io.EOF there, and
// io.ErrUnexpectedEOF when the stream ends before.
func NewChunkReader(r *bufio.Reader) io.Reader { return &chunkReader{r: r} }

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.left == 0 && c.err == nil && len(p) > 0 {
		c.err = c.next()
	}
	if len(p) == 0 || c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left, c.err = c.left-n, NoEOF(err)
	return n, c.err
}

// errChunk means that the sender violates the protocol.
var errChunk = errors.New("a chunk")

// CutOff turns incomplete content into a failure of the sender.
func CutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return Invalid("the content ended early: %w", err)
	}
	if errors.Is(err, errChunk) {
		return Invalid("the content is broken: %w", err)
	}
	return err
}

func (c *chunkReader) next() error {
	var n uint32
	if err := binary.Read(c.r, binary.BigEndian, &n); err != nil {
		return NoEOF(err)
	}
	if n == 0 {
		return io.EOF
	}
	if n > maxChunk {
		return fmt.Errorf("%w of %d bytes, want at most %d", errChunk, n, maxChunk)
	}
	c.left = int(n)
	return nil
}
