package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
)

// outside is where [Try] connects: of a network for documentation (RFC 5737), and it goes nowhere.
var outside = netip.MustParseAddrPort("203.0.113.1:443")

// tryTimeout bounds the one connection of Try, which does not leave the host.
const tryTimeout = 10 * time.Second

// Try reports whether this host can give a session a network of its own: in a namespace that is
// gone when it returns, a connection to an address outside has to come to the redirect's socket,
// and to tell where it wanted to go.
func Try() error {
	n, err := empty()
	if err != nil {
		return err
	}
	return errors.Join(n.try(), n.Close())
}

// empty returns a new namespace.
func empty() (n *Namespace, err error) {
	err = sys.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("cannot make a network namespace: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("cannot open a network namespace: %w", err)
		}
		n = &Namespace{f}
		return nil
	})
	return n, err
}

func (n *Namespace) try() error {
	if err := n.Configure(); err != nil {
		return err
	}
	tcp, udp, err := n.Listen()
	if err != nil {
		return err
	}
	l, err := net.FileListener(tcp)
	if err = errors.Join(err, tcp.Close(), udp.Close()); err != nil {
		return err
	}
	defer l.Close()
	if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(tryTimeout)); err != nil {
		return err
	}
	return n.in(func() error {
		d := net.Dialer{Timeout: tryTimeout}
		c, err := d.Dial("tcp4", outside.String())
		if err != nil {
			return fmt.Errorf("the redirect takes no connection: %w", err)
		}
		defer c.Close()
		got, err := l.Accept()
		if err != nil {
			return fmt.Errorf("the redirect leads elsewhere: %w", err)
		}
		defer got.Close()
		at := got.LocalAddr().(*net.TCPAddr).AddrPort()
		if at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port()); at != outside {
			return fmt.Errorf("a connection to %s arrives as one to %s", outside, at)
		}
		return nil
	})
}
