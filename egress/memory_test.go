package egress

import (
	"fmt"
	"net"
	"runtime"
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestAwakeMemory: 500 awake chats, each with a name that it has asked for and an idle connection,
// cost chatd-egress at most 60 MB. The clients and servers of the test are in the figure.
func TestAwakeMemory(t *testing.T) {
	const chats, most = 500, 60 << 20
	w := newWorld(t)
	server := listenTCP(t, echo)
	w.dns.set("api.example.org", server.Addr().String())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all []*net.TCPConn
	for i := range chats {
		id := chat.ID(fmt.Sprintf("%016x", i))
		n := w.open(id, fmt.Sprintf("api.example.org:%d", server.Port()), server.String())
		c := w.dial(n, w.named(n, "api.example.org", server.Port()))
		wantEcho(t, c, "\x00")
		all = append(all, c)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(all)
	got := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	t.Logf("%d chats take %d KiB, %d each", chats, got>>10, got/chats>>10)
	if got > most {
		t.Errorf("%d chats take %d MiB, want at most %d", chats, got>>20, most>>20)
	}
}
