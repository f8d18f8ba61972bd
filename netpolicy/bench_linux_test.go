package netpolicy

import (
	"fmt"
	"net/netip"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkPacket sends UDP over a veth as a chat: without rules, and with the
// wall of 1 to 10,000 policies, asked as a uid of the last one. "user" is an
// ordinary user's packet past the same wall. Compare the ratios of one run: with "none",
// and with "conntrack", which every stateful firewall pays. The
// number of chats on a policy plays no part, because rules name blocks. cpu-ns/op is
// the time of the sending thread alone, the figure to compare on a busy machine.
func BenchmarkPacket(b *testing.B) {
	out := outside(b)
	serve(b, out, 0, "203.0.113.5", 8001, "udp")
	b.Run("none", func(b *testing.B) { sendMany(b, uidA) })
	b.Run("conntrack", func(b *testing.B) {
		trackConnections(b)
		sendMany(b, uidA)
	})
	for _, n := range []int{1, 16, 200, 2000} {
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			table := newTable(b, hostTools)
			many := manyPolicies(b, min(n, 128))
			for i := len(many); i < n; i++ { // more than the range has blocks: exceptions of single uids
				p := many[0]
				p.Blocks = []Range{{uint32(rangeLow + 65536 + 2*i), uint32(rangeLow + 65536 + 2*i)}}
				many = append(many, p)
			}
			apply(b, table, many)
			last := many[n-1].Blocks[0].Low
			b.Run("chat", func(b *testing.B) { sendMany(b, last) })
			b.Run("user", func(b *testing.B) { sendMany(b, uidHost) })
		})
	}
}

// trackConnections has the kernel follow connections, as it does on every host
// with a stateful firewall, and nothing else.
func trackConnections(b *testing.B) {
	for _, line := range [][]string{
		{"nft", "add", "table", "inet", "tracked"},
		{"nft", "add", "chain", "inet", "tracked", "out", "{ type filter hook output priority 0; }"},
		{"nft", "add", "rule", "inet", "tracked", "out", "ct", "state", "invalid", "drop"},
	} {
		must.Run(b, exec.Command(line[0], line[1:]...))
	}
	b.Cleanup(func() {
		out, err := exec.Command("nft", "delete", "table", "inet", "tracked").CombinedOutput()
		expect.True(b, err == nil, "%v: %s", err, out)
	})
}

func sendMany(b *testing.B, uid uint32) {
	must.Do(b, sys.AsUID(uid, func() error {
		fd, err := testSocket(netip.MustParseAddr("203.0.113.5"), "udp")
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 5}, Port: 8001}); err != nil {
			return err
		}
		word := []byte("x")
		b.ResetTimer()
		before, err := threadTime()
		if err != nil {
			return err
		}
		for range b.N {
			if _, err := unix.Write(fd, word); err != nil {
				return err
			}
		}
		after, err := threadTime()
		b.ReportMetric(float64(after-before)/float64(b.N), "cpu-ns/op")
		return err
	}))
}

// threadTime is how long this thread has been on a CPU.
func threadTime() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}
