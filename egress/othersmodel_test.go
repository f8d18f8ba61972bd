package egress

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/must"
)

// misbehaviours are what a server or a client does behind its first bytes, until stop.
var misbehaviours = []func(c *net.TCPConn, stop chan struct{}){
	func(_ *net.TCPConn, stop chan struct{}) { <-stop }, // stalls, and never reads
	func(c *net.TCPConn, stop chan struct{}) { _ = c.CloseWrite(); <-stop },
	func(c *net.TCPConn, stop chan struct{}) { _ = c.CloseRead(); <-stop },
	func(c *net.TCPConn, _ chan struct{}) { reset(c) },
	func(c *net.TCPConn, _ chan struct{}) { _ = c.Close() },
	func(c *net.TCPConn, stop chan struct{}) { // sends without an end, and never reads
		for b := make([]byte, 1<<10); ; {
			select {
			case <-stop:
				return
			default:
			}
			_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			_, _ = c.Write(b)
		}
	},
	func(c *net.TCPConn, stop chan struct{}) { _, _ = io.Copy(c, c); <-stop },
}

// openings are the first bytes of clients, for a host; answers are those of servers.
var (
	clientOpenings = []string{
		"", "\n", "SSH-2.0-x\r\n", "\x16\x03\x01", "GET / HTTP/1.1\r\nHost: %s\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: %s\r\n", "GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nmore",
		"POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		"GET / HTTP/1.1\r\nHost: %[1]s\r\n\r\nGET / HTTP/1.1\r\nHost: %[1]s\r\n\r\n",
	}
	serverOpenings = []string{
		"", "220 ready\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\npart", "HTTP/1.1 200 OK\r\nX: ",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\nmore",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bar\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "\x00\x00\x00",
	}
)

// TestOthersOfMisbehaviour is a model: clients and servers of chat A begin by any protocol, and go
// on as they like, while B looks names up and makes requests. B gets all of it; what A has ends
// when A does; nothing is left at the end.
func TestOthersOfMisbehaviour(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	log.SetOutput(io.Discard) // net/http writes there what a server sent unasked
	defer log.SetOutput(os.Stderr)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var drawing sync.Mutex // servers of one round may still draw in the next
	draw := func(n int) int {
		drawing.Lock()
		defer drawing.Unlock()
		return random.IntN(n)
	}
	var idle, beside []time.Duration
	for range rounds {
		w := newWorld(t)
		stop := make(chan struct{})
		var all sync.WaitGroup
		bad := listenTCP(t, func(c *net.TCPConn) {
			defer c.Close()
			b := make([]byte, 4096)
			if draw(3) > 0 {
				_, _ = c.Read(b)
			}
			_, _ = io.WriteString(c, serverOpenings[draw(len(serverOpenings))])
			misbehaviours[draw(len(misbehaviours))](c, stop)
		})
		good := newOrigin(t, nil)
		w.dns.set("api.example.org", "127.0.0.1")
		b := w.open(two, good.host, good.addr.String())
		idle = append(idle, w.useOf(b, good))
		a := w.open(one, fmt.Sprintf("api.example.org:%d", bad.Port()), bad.String())
		host := fmt.Sprintf("api.example.org:%d", bad.Port())
		for range 40 {
			c := w.dial(a, w.named(a, "api.example.org", bad.Port()))
			all.Go(func() {
				opening := clientOpenings[draw(len(clientOpenings))]
				if strings.Contains(opening, "%") {
					opening = fmt.Sprintf(opening, host)
				}
				_, _ = io.WriteString(c, opening)
				misbehaviours[draw(len(misbehaviours))](c, stop)
			})
		}
		for range 3 {
			beside = append(beside, w.useOf(b, good))
		}
		w.call(uplink.Call{Verb: uplink.Close, Chat: one})
		beside = append(beside, w.useOf(b, good))
		close(stop)
		all.Wait()
		w.call(uplink.Call{Verb: uplink.Close, Chat: two})
	}
	slices.Sort(idle)
	slices.Sort(beside)
	t.Logf("a look-up and a request: at most %s idle, %s beside", idle[len(idle)-1], beside[len(beside)-1])
}

// useOf looks a name up for a chat, and makes a request.
func (w *world) useOf(n *network, o *origin) time.Duration {
	w.t.Helper()
	began := time.Now()
	must.Get(n.addresses(w.t.Context(), target{host: "api.example.org",
		dst: netip.AddrPortFrom(netip.Addr{}, o.addr.Port())}))(w.t)
	c := w.dial(n, w.named(n, "api.example.org", o.addr.Port()))
	defer c.Close()
	must.Get(io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n"))(w.t)
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	must.True(w.t, err == nil && a.StatusCode == http.StatusOK, "%+v, %v", a, err)
	return time.Since(began)
}
