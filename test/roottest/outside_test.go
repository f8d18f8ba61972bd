package roottest

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// internet is the internet of a test, at the other end of a wire: servers, and the DNS of the zone
// example.test.
type internet struct {
	*peer
	asked atomic.Int64              // queries
	turn  atomic.Int64              // how often turn.example.test was looked up
	open  map[string][]net.Listener // by port
}

// outsideAddr is the address of its servers, which is public; so is outsideAddr6.
const outsideAddr, outsideAddr6 = "203.0.113.2", "2001:db8:213::2"

// newInternet starts a server of each kind: 7000 answers a line, 22 speaks first, 8080 is HTTP, 443
// TLS, UDP 123 answers a datagram, 53 is DNS.
func newInternet(t testing.TB) *internet {
	t.Helper()
	o := &internet{peer: newPeer(t), open: map[string][]net.Listener{}}
	for _, l := range o.listen(t, "7000") {
		go each(l, func(c net.Conn) { answerLine(c, "") })
	}
	for _, l := range o.listen(t, "22") {
		go each(l, func(c net.Conn) { answerLine(c, "SSH-2.0-test\r\n") })
	}
	for _, l := range o.listen(t, "8080") {
		go func() { _ = http.Serve(l, http.HandlerFunc(answerHost)) }()
	}
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}}
	for _, l := range o.listen(t, "443") {
		go each(tls.NewListener(l, config), func(c net.Conn) { answerLine(c, "") })
	}
	datagrams := o.packets(t, "123")
	go answerDatagrams(datagrams, func(b []byte) []byte {
		return append([]byte("outside heard "),
			b...)
	})
	go answerDatagrams(o.packets(t, "53"), o.resolve)
	return o
}

// in acts in the network of the outside.
func (o *internet) in(t testing.TB, act func() error) {
	t.Helper()
	ns := must.Get(os.Open(fmt.Sprintf("/proc/%d/ns/net", o.cmd.Process.Pid)))(t)
	defer ns.Close()
	must.Do(t, sys.OnThread(func() error {
		return errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), act())
	}))
}

// standing counts the connections to a port of the outside that neither side has closed.
func (o *internet) standing(t testing.TB, port int) (n int64) {
	for _, list := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", o.cmd.Process.Pid, list))
		expect.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "01" { // established
				n++
			}
		}
	}
	return n
}

func (o *internet) listen(t testing.TB, port string) (all []net.Listener) {
	for _, host := range []string{"0.0.0.0", "::"} {
		var l net.Listener
		o.in(t, func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(context.Background(), map[bool]string{true: "tcp4", false: "tcp6"}[host == "0.0.0.0"], net.JoinHostPort(host, port))
			return err
		})
		t.Cleanup(func() { _ = l.Close() })
		all = append(all, l)
	}
	o.open[port] = all
	return all
}

// silence frees a port.
func (o *internet) silence(port string) {
	for _, l := range o.open[port] {
		_ = l.Close()
	}
}

func (o *internet) packets(t testing.TB, port string) net.PacketConn {
	var c net.PacketConn
	o.in(t, func() (err error) {
		c, err = net.ListenPacket("udp4", net.JoinHostPort(outsideAddr, port))
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func each(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			serve(c)
		}()
	}
}

func answerHost(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Host) }

// answerLine says first, and then answers a line.
func answerLine(c net.Conn, first string) {
	_, _ = io.WriteString(c, first)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err == nil {
		fmt.Fprintf(c, "outside heard %s", line)
	}
}

func answerDatagrams(c net.PacketConn, answer func([]byte) []byte) {
	b := make([]byte, 4096)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if a := answer(b[:n]); a != nil {
			_, _ = c.WriteTo(a, from)
		}
	}
}

func selfSigned(t testing.TB) tls.Certificate {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		DNSNames: []string{"api.example.test"}}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// zone has the addresses of example.test; "" is NXDOMAIN, "-" a name without an address.
func (o *internet) zone(name string, kind dnsmessage.Type) string {
	host, ok := strings.CutSuffix(strings.ToLower(name), ".example.test.")
	switch {
	case !ok:
		return ""
	case host == "inner":
		return "10.213.0.2"
	case host == "meta":
		return "169.254.169.254"
	case host == "self":
		return "203.0.113.1" // the chats' host
	case host == "loop":
		return "127.0.0.1"
	case host == "turn": // first public, then private
		if kind == dnsmessage.TypeA && o.turn.Add(1) > 1 {
			return "10.213.0.2"
		}
		return outsideAddr
	case host == "empty":
		return "-"
	case host == "git", host == "npm", host == "pypi", host == "mirror", host == "db", host == "web",
		host == "proxy":
		return outsideAddr
	case host == "api", host == "other", host == "ssh", strings.HasSuffix(host,
		".wild"), strings.HasSuffix(host, "wild"):
		return outsideAddr
	}
	return ""
}

func (o *internet) resolve(b []byte) []byte {
	o.asked.Add(1)
	var m dnsmessage.Message
	if m.Unpack(b) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Header.Response, m.Header.RecursionAvailable, m.Additionals = true, true, nil
	switch addr := o.zone(q.Name.String(), q.Type); {
	case addr == "":
		m.Header.RCode = dnsmessage.RCodeNameError
	case addr != "-" && q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: [4]byte(net.ParseIP(addr).To4())},
		}}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	return answer
}
