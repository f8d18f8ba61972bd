package roottest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/test/must"
)

// BenchmarkNetwork is a chat's connections by name through chatd-egress, beside the same by a
// process of the host: directly, through proxies of net/http (rivalProxies), and in a network of
// pasta; in turn in one run: read the ratios. The servers are at the other end of a wire.
//
//	go test ./test/roottest -run - -bench BenchmarkNetwork -benchtime 1x
func BenchmarkNetwork(b *testing.B) {
	o := newInternet(b)
	benchServers(b, o)
	opt, _ := withSecret(b, "api.example.test:1-65535")
	a := inmateOf(b, open(b, opt), "bench", "named")
	ways := []benchWay{
		{"chatd-egress", a.try, "api.example.test"}, {"direct", asHost, outsideAddr},
		{"CONNECT proxy", asHost, rivalProxy(b, "connect") + "!" + outsideAddr},
	}
	if _, err := os.Stat("/usr/bin/pasta"); err == nil {
		ways = append(ways, benchWay{"pasta", inPasta, outsideAddr})
	} else {
		fmt.Fprintln(os.Stderr, "NOT MEASURED: the host has no pasta (Debian: passt)")
	}
	forward := benchWay{"forward proxy", asHost, rivalProxy(b, "forward") + "^" + outsideAddr}
	intercept := benchWay{"TLS proxy", asHost, rivalProxy(b, "intercept") + "!" + outsideAddr}
	acts := []struct {
		args []string
		ways []benchWay // beside the others
	}{
		{[]string{"bench-connect", ":7000", "50"}, nil},
		{[]string{"bench-stream", ":7001", "1"}, nil},
		{[]string{"bench-stream", ":7001", "8"}, nil},
		{[]string{"bench-requests", ":8080", "300"}, []benchWay{forward}},
		{[]string{"bench-requests-tls", ":9443", "300"}, nil},
		{[]string{"bench-connect-secret", ":8443", "20"}, []benchWay{intercept}},
		{[]string{"bench-requests-secret", ":8443", "300"}, []benchWay{intercept}},
	}
	t := table{}
	for range envInt("CHATD_BENCH_ROUNDS", 5) {
		for _, act := range acts {
			for _, way := range append(slices.Clip(ways), act.ways...) {
				act := act.args
				got := way.try(b, act[0], way.to+act[1], act[2])
				ms, err := strconv.ParseFloat(strings.TrimPrefix(got, "ok "), 64)
				if err != nil && way.name == "pasta" { // resets many streams at times
					fmt.Fprintf(os.Stderr, "NOT MEASURED: pasta, %q: %s\n", act, got)
					continue
				} else if err != nil {
					b.Fatalf("%s, %q: %s", way.name, act, got)
				}
				what := act[0] + " " + act[2] + " " + way.name
				t[what] = append(t[what], time.Duration(ms*1e6))
			}
		}
	}
	for _, act := range acts {
		what, rivals := act.args[0]+" "+act.args[2]+" ", []string{}
		for _, way := range append(slices.Clip(ways), act.ways...)[1:] {
			rivals = append(rivals, what+way.name)
		}
		t.say(b, what+ways[0].name, rivals...)
	}
}

// benchWay is a way to the servers, which have the address to there.
type benchWay struct {
	name string
	try  func(testing.TB, ...string) string
	to   string
}

// benchServers are a sink on port 7001, HTTPS on 9443, and on 8443 what wants the key.
func benchServers(b *testing.B, o *internet) {
	for _, l := range o.listen(b, "7001") {
		go each(l, func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			fmt.Fprintln(c, n)
		})
	}
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(b)}}
	for _, l := range o.listen(b, "9443") {
		go func() { _ = http.Serve(tls.NewListener(l, config), http.HandlerFunc(answerHost)) }()
	}
	newAPI(b, o)
}

// inPasta is an act in a network of pasta, whose sockets are those of a process of the host. It
// would take the gateway's address for the host's own, and hangs as another user than root.
func inPasta(t testing.TB, args ...string) string {
	program := filepath.Join(t.TempDir(), attackName)
	must.Do(t, os.Symlink(attacker(t), program))
	return saidBy(t, exec.Command("timeout", append([]string{"-k", "1", "60", "pasta", "--runas",
		"0", "--config-net", "--no-map-gw", "-q", "-4", "-i", wireName, "-a", "203.0.113.1", "-n",
		"24", "-g", "203.0.113.9", "--", program}, args...)...))
}

// benchActs print milliseconds.
var benchActs = map[string]act{
	// bench-connect [PROXY!]ADDRESS TIMES: the median of a connection, a line and its answer
	// to an address that was looked up before
	"bench-connect": func(a []string) (string, error) {
		var all []float64
		host, port, err := net.SplitHostPort(a[0])
		if err == nil && !strings.ContainsAny(host, "!^") {
			addrs := value(net.LookupHost(host))
			a[0] = net.JoinHostPort(addrs[0], port)
		}
		for range number(a[1]) {
			began := time.Now()
			c := value(benchDial(a[0]))
			value(say(c, "x"))
			all = append(all, milliseconds(began))
		}
		slices.Sort(all)
		return fmt.Sprintf("%.4f", all[len(all)/2]), nil
	},
	// bench-stream [PROXY!]ADDRESS STREAMS: 256 MB, over this many connections
	"bench-stream": func(a []string) (string, error) {
		n := number(a[1])
		began := time.Now()
		ends := make(chan error, n)
		for range n {
			go func() { ends <- benchSend(a[0], 256<<20/n) }()
		}
		for range n {
			check(<-ends)
		}
		return fmt.Sprintf("%.3f", milliseconds(began)), nil
	},
	// bench-requests [PROXY!]ADDRESS TIMES: requests over one connection, each in mean
	"bench-requests":        func(a []string) (string, error) { return benchRequests(a, benchDial) },
	"bench-requests-tls":    func(a []string) (string, error) { return benchRequests(a, benchTLS) },
	"bench-requests-secret": func(a []string) (string, error) { return benchRequests(a, benchTLS) },
	// bench-connect-secret [PROXY!]ADDRESS TIMES: connections with one request each, in mean
	"bench-connect-secret": func(a []string) (string, error) {
		began := time.Now()
		for range number(a[1]) {
			value(benchRequests([]string{a[0], "1"}, benchTLS))
		}
		return fmt.Sprintf("%.4f", milliseconds(began)/float64(number(a[1]))), nil
	},
}

// benchTLS does not check the server: a process of the host would not trust what chats do.
func benchTLS(to string) (net.Conn, error) {
	c, err := benchDial(to)
	if err != nil {
		return nil, err
	}
	t := tls.Client(c, &tls.Config{ServerName: benchHost(to), InsecureSkipVerify: true})
	return t, t.Handshake()
}

func benchHost(to string) string {
	host, _, _ := net.SplitHostPort(to[strings.IndexAny(to, "!^")+1:])
	return host
}

// benchRequests sends the key of the chat's environment, or what it stands for.
func benchRequests(a []string, dial func(string) (net.Conn, error)) (string, error) {
	began := time.Now()
	c := value(dial(a[0]))
	defer c.Close()
	key := os.Getenv("API_KEY")
	if key == "" {
		key = secretValue
	}
	target := "/"
	if _, addr, ok := strings.Cut(a[0], "^"); ok {
		target = "http://" + addr + target // RFC 9112, section 3.2.2
	}
	r := bufio.NewReader(c)
	for range number(a[1]) {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\n\r\n", target,
			benchHost(a[0]), key)
		answer := value(http.ReadResponse(r, nil))
		if _, err := io.Copy(io.Discard, answer.Body); err != nil ||
			answer.StatusCode != http.StatusOK {
			return "", errors.Join(err, errors.New(answer.Status))
		}
	}
	return fmt.Sprintf("%.4f", milliseconds(began)/float64(number(a[1]))), nil
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since)) / 1e6 }

// benchDial connects to ADDRESS, by a tunnel to PROXY!ADDRESS, or to the proxy of PROXY^ADDRESS.
func benchDial(to string) (net.Conn, error) {
	to, _, _ = strings.Cut(to, "^")
	proxy, addr, ok := strings.Cut(to, "!")
	if !ok {
		return net.Dial("tcp", to)
	}
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", addr, addr)
	answer := make([]byte, len("HTTP/1.1 200 OK\r\n\r\n"))
	_, err = io.ReadFull(c, answer)
	return c, err
}

func benchSend(to string, size int) error {
	c, err := benchDial(to)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 128<<10)
	for sent := 0; sent < size; sent += len(b) {
		if _, err := c.Write(b); err != nil {
			return err
		}
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Fscan(c, &n); err != nil || n < size {
		return errors.Join(err, fmt.Errorf("%d bytes came, want %d", n, size))
	}
	return nil
}

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
		l := value(net.Listen("tcp", "127.0.0.1:0"))
		fmt.Println(l.Addr())
		go func() { _ = http.Serve(l, rivalProxies[a[0]]) }()
		value(io.Copy(io.Discard, os.Stdin))
		return "", nil
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
	return strings.TrimSpace(must.Get(bufio.NewReader(out).ReadString('\n'))(t))
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
