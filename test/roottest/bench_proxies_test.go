package roottest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/test/must"
)

// rivalProxies are what BenchmarkNetwork measures chatd-egress beside, with no check at all. Each
// is a process of the host, as chatd-egress is: a proxy in the process of the servers would need
// no switch to them.
//
//   - connect relays bytes after a CONNECT (RFC 9110, section 9.3.6), and so is the floor of any
//     relay in Go.
//   - forward is what HTTP_PROXY leads to: it reads each request and sends it anew.
//   - intercept ends TLS and reads each request, as a proxy has to that changes a header.
var rivalProxies = map[string]http.Handler{
	"connect": tunnelTo(func(from net.Conn, host string) {
		to, err := net.Dial("tcp", host)
		if err != nil {
			return
		}
		defer to.Close()
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(to, from); _ = to.(*net.TCPConn).CloseWrite() })
		both.Go(func() { _, _ = io.Copy(from, to); _ = from.(*net.TCPConn).CloseWrite() })
		both.Wait()
	}),
	"forward":   reverseProxy("http", "", &http.Transport{}),
	"intercept": tunnelTo(intercept()),
}

// proxyActs are the rivals as processes.
var proxyActs = map[string]act{
	// bench-proxy KIND: says its address, and serves until its input ends
	"bench-proxy": func(a []string) (string, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		fmt.Println(l.Addr())
		go func() { _ = http.Serve(l, rivalProxies[a[0]]) }()
		_, err = io.Copy(io.Discard, os.Stdin)
		return "", err
	},
}

// rivalProxy starts a rival, and returns its address.
func rivalProxy(t testing.TB, kind string) string {
	t.Helper()
	cmd := exec.Command(attacker(t), "bench-proxy", kind)
	cmd.Args[0], cmd.Stderr = attackName, os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { must.Do(t, in.Close()); must.Do(t, cmd.Wait()) })
	addr := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return strings.TrimSpace(addr)
}

// tunnelTo answers CONNECT, and gives the client's connection to f.
func tunnelTo(f func(from net.Conn, host string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer from.Close()
		_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		f(from, r.Host)
	})
}

// reverseProxy passes requests to host, or to the host that they name.
func reverseProxy(scheme, host string, t http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Transport: t, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme = scheme
			if host != "" {
				p.Out.URL.Host = host
			}
		}}
}

// intercept ends TLS, and has one connection to the server for each of a client.
func intercept() func(net.Conn, string) {
	cert := sync.OnceValues(func() (tls.Certificate, error) {
		a, err := gateway.NewAuthority([]byte("intercept"), time.Now())
		if err != nil {
			return tls.Certificate{}, err
		}
		b, err := a.Issue("api.example.test", time.Now())
		if err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(b, b)
	})
	return func(from net.Conn, host string) {
		c, err := cert()
		if err != nil {
			return
		}
		t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
		defer t.CloseIdleConnections()
		client := tls.Server(from, &tls.Config{Certificates: []tls.Certificate{c}})
		l := &oneConn{Conn: client, first: make(chan net.Conn, 1), ended: make(chan struct{})}
		l.first <- l
		_ = http.Serve(l, reverseProxy("https", host, t))
	}
}

// oneConn is a listener with one connection, which is itself.
type oneConn struct {
	net.Conn
	first chan net.Conn
	ended chan struct{}
	once  sync.Once
}

// Accept returns the connection, and then waits for its end.
func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.first:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

// Close ends both.
func (l *oneConn) Close() error {
	l.once.Do(func() { close(l.ended) })
	return l.Conn.Close()
}

// Addr is of no use.
func (l *oneConn) Addr() net.Addr { return l.LocalAddr() }
