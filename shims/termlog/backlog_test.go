package termlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/chatd/chatd/test/expect"
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
		if b.lost != lost || b.have != len(want) || !bytes.HasPrefix(want, b.next()) {
			t.Fatalf("after %d pieces: %d lost, %d there, next %v; want %d, %d, %v", i, b.lost,
				b.have, b.next(), lost, len(want), want)
		}
		n := rnd.IntN(len(b.next()) + 1)
		b.take(n)
		want = want[n:]
	}
	expect.Equal(t, string(b.note()), fmt.Sprintf("\r\n[chatd left %d bytes out]\r\n", lost), "the note")
	if b.take(b.have); b.start != 0 {
		t.Error("an empty backlog does not begin at the front")
	}
}
