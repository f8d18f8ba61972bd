package termlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestBacklog compares with a slice that forgets at its front.
func TestBacklog(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	b, want, lost := newBacklog(100), []byte{}, int64(0)
	for i := range 2000 {
		p := bytes.Repeat([]byte{byte(i)}, rnd.IntN(30))
		if i%100 == 0 {
			p = bytes.Repeat([]byte{byte(i)}, 250)
		}
		b.add(p)
		want = append(want, p...)
		if n := len(want) - 100; n > 0 {
			want, lost = want[n:], lost+int64(n)
		}
		must.True(t, b.lost == lost && bytes.Equal(want, b.Bytes()),
			"after %d pieces: %d lost, %v there; want %d, %v", i, b.lost, b.Bytes(), lost, want)
		n := rnd.IntN(b.Len() + 1)
		b.take(n)
		want = want[n:]
	}
	expect.Equal(t, string(b.note()), fmt.Sprintf("\r\n[chatd left %d bytes out]\r\n", lost), "the note")
	b.take(b.Len())
	expect.Equal(t, b.Available(), b.Cap(), "an empty backlog begins at the front: what it has room for")
	expect.Equal(t, b.Cap(), newBacklog(100).Cap(), "it never grew: its room")
}
