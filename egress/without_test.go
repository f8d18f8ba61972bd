package egress

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
)

// TestWithoutNames: the attacks of TestWebLies, TestWebLiesLater, TestWeb2 and TestLenient by
// a listed address, which opens whatever is behind it: each arrives as it is. So it is the check of names
// that refuses them, and no fault of the attack.
func TestWithoutNames(t *testing.T) {
	got := make(chan string, 1)
	server := listenTCP(t, func(c *net.TCPConn) {
		defer c.Close()
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	w := newWorld(t)
	n := w.open(one, server.String())
	attacks := []string{
		"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n",
		"GET http://other.example/ HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"CONNECT other.example:443 HTTP/1.1\r\nHost: api.example.org\r\n\r\n",
		"GET /1 HTTP/1.1\r\nHost: api.example.org\r\n\r\n" +
			"GET /2 HTTP/1.1\r\nHost: other.example\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	}
	for _, line := range lenient {
		attacks = append(attacks, line+"\r\nHost: other.example\r\n\r\n")
	}
	for _, attack := range attacks {
		c := w.dial(n, server)
		for piece := range slices.Chunk([]byte(attack), 1+len(attack)/8) {
			_, _ = c.Write(piece)
		}
		_ = c.CloseWrite()
		came := <-got
		expect.True(t, came == attack, "%.40q came as %.40q", attack, strings.TrimSpace(came))
	}
}
