package redact

import (
	"encoding/binary"
	"errors"
)

// maxInserted and maxGaps bound what is kept back with the end of a fragment.
const (
	maxInserted = 16 << 10 // bytes of headers and control frames
	maxGaps     = 256
)

// errFrame is the error of a WebSocket server that violates RFC 6455, or uses an extension that
// nobody asked for.
var errFrame = errors.New("the server sends a WebSocket frame that cannot be read")

// maxControl bounds the payload of a control frame (RFC 6455, section 5.5).
const maxControl = 125

// frames scrubs the messages in the frames of a WebSocket server (RFC 6455, section 5). A text that
// is divided among the fragments of a message is found, and nothing is kept back at the end of a
// message: a client may wait for it.
type frames struct {
	scrub   scrubber
	header  []byte // of the frame that begins
	left    uint64 // bytes of the frame's payload to come
	inside  bool   // a frame has begun
	final   bool   // it is the last one of its message
	control []byte // a control frame, which may come between fragments; nil outside of one
	out     []byte
}

// next reads b. At the end of the stream everything is passed on.
func (f *frames) next(b []byte, end bool) ([]byte, error) {
	f.out = f.out[:0]
	for len(b) > 0 {
		var err error
		if f.inside {
			b = f.payload(b)
		} else if b, err = f.begin(b); err != nil {
			return f.out, err
		}
		if f.inside && f.left == 0 {
			f.endFrame()
		}
		if len(f.scrub.gaps) > maxGaps || len(f.scrub.out)-len(f.scrub.text) > maxInserted {
			return f.out, errFrame
		}
	}
	if end {
		f.out = append(f.out, f.scrub.feed(nil, true)...)
		f.out = append(append(f.out, f.control...), f.header...)
	}
	return f.out, nil
}

// begin reads a frame's header, byte by byte: it has 2 to 10.
func (f *frames) begin(b []byte) ([]byte, error) {
	f.header = append(f.header, b[0])
	h := f.header
	if len(h) < 2 {
		return b[1:], nil
	}
	if h[0]&0x70 != 0 || h[1]&0x80 != 0 {
		return nil, errFrame
	}
	size := 2
	switch h[1] {
	case 126:
		size = 4
	case 127:
		size = 10
	}
	if len(h) < size {
		return b[1:], nil
	}
	switch size {
	case 2:
		f.left = uint64(h[1])
	case 4:
		f.left = uint64(binary.BigEndian.Uint16(h[2:]))
	default:
		f.left = binary.BigEndian.Uint64(h[2:])
	}
	f.inside, f.final = true, h[0]&0x80 != 0
	if h[0]&0x08 != 0 {
		if f.left > maxControl || !f.final {
			return nil, errFrame
		}
		f.control = append([]byte{}, h...)
	} else {
		f.scrub.insert(h)
	}
	f.header = f.header[:0]
	return b[1:], nil
}

// payload reads what there is of it.
func (f *frames) payload(b []byte) []byte {
	n := int(min(f.left, uint64(len(b))))
	f.left -= uint64(n)
	if f.control != nil {
		f.control = append(f.control, b[:n]...)
	} else {
		f.out = append(f.out, f.scrub.feed(b[:n], false)...)
	}
	return b[n:]
}

// endFrame ends a frame. A control frame keeps its place, and is a text of its own.
func (f *frames) endFrame() {
	f.inside = false
	if f.control != nil {
		own := scrubber{texts: f.scrub.texts}
		own.insert(f.control[:2])
		f.scrub.insert(own.feed(f.control[2:], true))
		f.control = nil
		f.out = append(f.out, f.scrub.feed(nil, false)...)
		return
	}
	f.out = append(f.out, f.scrub.feed(nil, f.final)...)
}
