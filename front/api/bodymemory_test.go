package api

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// stallBodies sends many bodies that lack their last byte, and returns once all of them are sent.
func stallBodies(t *testing.T, socket string, many int) (conns []net.Conn) {
	t.Helper()
	body := strings.Repeat(" ", 1<<20-1)
	var sent sync.WaitGroup
	for range many {
		c := dial(t, socket)
		conns = append(conns, c)
		sent.Go(func() {
			if _, err := fmt.Fprintf(c, "POST /v1/chats HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", 1<<20, body); err != nil {
				t.Error(err)
			}
		})
	}
	sent.Wait()
	return conns
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// Stalled bodies hold no more than their owner's share, and small bodies still get in.
func TestAttackStalledBodies(t *testing.T) {
	const many = 160
	socket, _ := start(t, ServerOptions{HeaderTimeout: generous, BodyTimeout: generous})
	before := heapInUse()
	conns := stallBodies(t, socket, many)
	held := heapInUse() - before
	expect.True(t, held <= 64<<20, "%d bodies that stall hold %d MiB", many, held>>20)
	c := clientAt(t, socket)
	made, _, err := c.Create(t.Context(), chat.Spec{ExternalID: "small"})
	must.True(t, err == nil, "a small request beside them: %v", err)
	large := chat.RunSpec{Command: "cat", Stdin: strings.Repeat("x", 1<<20)}
	if _, err := c.Run(t.Context(), made.ID, large); err == nil || !strings.Contains(err.Error(), "hold all the memory") || client.Kind(err) != "busy" {
		t.Errorf("a large request beside them: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "what they held is given back", func() bool { _, err := c.Run(t.Context(), made.ID, large); return err == nil })
}

// Without the share, stalled bodies hold as much as they like.
func TestAttackStalledBodiesWithout(t *testing.T) {
	const many = 160
	socket, _ := start(t, ServerOptions{HeaderTimeout: generous, BodyTimeout: generous, MaxBodies: 1 << 40})
	before := heapInUse()
	stallBodies(t, socket, many)
	eventually(t, "they hold over 100 MiB", func() bool { return heapInUse()-before > 100<<20 })
}
