package egress

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/test/must"
)

var anyResolver = netip.MustParseAddrPort("127.0.0.53:53")

// TestQuestionsAtOnce: programs that ask simultaneously are all answered.
func TestQuestionsAtOnce(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "*.example.org:443")
	var programs []*net.UDPConn
	for i := range 300 {
		w.dns.set(fmt.Sprintf("n%d.example.org", i%60), "192.0.2.7")
		programs = append(programs, listenUDP(t))
	}
	for i, p := range programs {
		n.datagram(udpAddr(p.LocalAddr()), anyResolver,
			question(t, fmt.Sprintf("n%d.example.org", i%60)))
	}
	for i, p := range programs {
		wantAnswer(t, w, n, p, fmt.Sprintf("n%d.example.org", i%60))
	}
}

func wantAnswer(t *testing.T, w *world, n *network, program *net.UDPConn, host string) {
	t.Helper()
	must.Do(t, program.SetReadDeadline(time.Now().Add(guard)))
	b := make([]byte, maxDatagram)
	k, err := program.Read(b)
	must.True(t, err == nil, "%s: %v", host, err)
	wantAddr(t, b[:k], w.named(n, host, 0).Addr())
}

// TestQuestionsFlood: a chat whose questions wait takes half of the places, some 12 KiB each, and
// no time of another chat's.
func TestQuestionsFlood(t *testing.T) {
	w := newWorld(t)
	w.dns.set("api.example.org", "192.0.2.7")
	n, other := w.open(one, "*.example.org:443"), w.open(two, "*.example.org:443")
	ours, all := listenUDP(t), int64(freshQuestions)
	w.s.waiting.left = all
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range freshQuestions {
		n.datagram(udpAddr(ours.LocalAddr()), anyResolver,
			question(t, fmt.Sprintf("%s%d.example.org", silent, i)))
	}
	if n.waiting.held != all/2 {
		t.Errorf("%d questions wait", n.waiting.held)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	got := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	t.Logf("a question that waits takes %d bytes", got/n.waiting.held)
	if got/n.waiting.held > 24<<10 {
		t.Errorf("%d questions take %d KiB", n.waiting.held, got>>10)
	}
	other.datagram(udpAddr(ours.LocalAddr()), anyResolver, question(t, "api.example.org"))
	wantAnswer(t, w, other, ours, "api.example.org")
}

// TestQuestionsLost: what is longer than a question, or over the rate of a chat, is not answered.
func TestQuestionsLost(t *testing.T) {
	w := newWorld(t)
	n := w.open(one, "*.example.org:443")
	ours := listenUDP(t)
	q := question(t, silent+".example.org")
	n.datagram(udpAddr(ours.LocalAddr()), anyResolver, append(q, make([]byte, maxQuestion)...))
	n.asks = quota.NewAllowance(0, time.Hour, time.Now)
	n.datagram(udpAddr(ours.LocalAddr()), anyResolver, q)
	if n.waiting.held != 0 {
		t.Errorf("%d questions wait", n.waiting.held)
	}
}

// silent begins names for which the DNS server has no answer.
const silent = "silent"

var errSilent = errors.New("no answer")

func isSilent(name string) bool { return strings.HasPrefix(name, silent) }
