package netpolicy

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/sys"
)

// TestRefusalsOfOneUIDHideNoOthers: a uid that is refused without end leaves a burst of lines
// in the kernel's log, and what another is refused meanwhile is logged all the same.
func TestRefusalsOfOneUIDHideNoOthers(t *testing.T) {
	outside(t)
	apply(t, newTable(t, hostTools), testPolicy(t, 1))
	knock := func(uid uint32, times int) {
		t.Helper()
		err := sys.AsUID(uid, func() error {
			for range times {
				fd, err := socket(netip.MustParseAddr("203.0.113.6"), false)
				if err != nil {
					return err
				}
				err = unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{203, 0, 113, 6}, Port: 9})
				_ = unix.Close(fd)
				if err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EINPROGRESS) {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	knock(uidA, 400)
	own, rest := logged(t)
	if own == 0 || own > 2*uidBurst || rest > 2*restBurst {
		t.Errorf("a uid that was refused 400 times has %d lines of its own and %d of the rest", own, rest)
	}
	knock(uidB, 1)
	if now, _ := logged(t); now != own+1 {
		t.Errorf("the refusal of another uid left %d lines, want 1", now-own)
	}
}

// logged counts the packets that were logged: for uids that had lines left, and for others.
func logged(t *testing.T) (own, rest int) {
	t.Helper()
	for line := range strings.Lines(run(t, "iptables -nvxL CHATD-NO")) {
		words := strings.Fields(line)
		if len(words) < 3 || words[2] != "LOG" {
			continue
		}
		n, err := strconv.Atoi(words[0])
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, "! 0x") || strings.Contains(line, "!0x") {
			rest += n
		} else {
			own += n
		}
	}
	return own, rest
}
