package egress

import (
	"net/netip"
	"testing"
)

// TestOtherResolver: a connection to another DNS server, which the chat's own resolver answers, is
// told; one to that resolver is not.
func TestOtherResolver(t *testing.T) {
	w := newWorld(t)
	n := w.open(one)
	w.dial(n, netip.MustParseAddrPort("127.0.0.1:53")).Close()
	w.dial(n, netip.MustParseAddrPort("8.8.8.8:53")).Close()
	if e := w.event(Refused, "own resolver"); e.Addr.String() != "8.8.8.8:53" {
		t.Errorf("%+v", e)
	}
}
