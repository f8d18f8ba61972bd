package terminal

import (
	"github.com/chatd/chatd/chat"
)

// All returns everything that is kept of a chat's log, at most [chat.LogSize] bytes.
func (l *Logs) All(id chat.ID) ([]byte, error) {
	b, err := l.open(id)
	if err != nil {
		return nil, err
	}
	defer l.leave(b)
	start, end, _ := b.ring.bounds()
	var all []byte
	for buf := make([]byte, 64<<10); start < end && len(all) < chat.LogSize; {
		n, from, err := b.ring.readAt(buf, start)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
		all, start = append(all, buf[:n]...), from+int64(n)
	}
	return all, nil
}

// Refill gives a chat without a log what All returned of a former one.
func (l *Logs) Refill(id chat.ID, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	b, err := l.open(id)
	if err != nil {
		return err
	}
	defer l.leave(b)
	return b.ring.append(text)
}
