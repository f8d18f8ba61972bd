package api

import (
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// bodyPiece is the unit in which the memory of bodies is counted. The first of each body is free:
// the number of simultaneous requests is bounded, and most bodies are far smaller.
const bodyPiece = 64 << 10

// bodyMemory is what the body of one request holds of its owner's share, until the request is over.
// A peer that sends all of a body but its last byte has memory for as long as it likes.
type bodyMemory struct {
	bodies *quota.Counter
	owner  string
	taken  []func()
}

// readAll is io.ReadAll that asks before it takes more memory ([chat.ErrBusy]).
func (m *bodyMemory) readAll(r io.Reader) ([]byte, error) {
	b := make([]byte, 0, 512)
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, err
		case len(b) < cap(b):
			continue
		}
		size := 2 * cap(b)
		if err := m.take(size); err != nil {
			return nil, err
		}
		b = append(make([]byte, 0, size), b...)
	}
}

// take makes what is held this many bytes.
func (m *bodyMemory) take(size int) error {
	for len(m.taken) < size/bodyPiece-1 {
		giveBack, ok := m.bodies.Take(m.owner)
		if !ok {
			return fmt.Errorf("cannot take the body: the bodies and unread answers of %s's other requests "+
				"hold all the memory that they may, ask again when they are done: %w", m.owner, chat.ErrBusy)
		}
		m.taken = append(m.taken, giveBack)
	}
	return nil
}

func (m *bodyMemory) giveBack() {
	for _, f := range m.taken {
		f()
	}
}
