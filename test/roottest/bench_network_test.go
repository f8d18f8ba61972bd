package roottest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkNetwork is a chat's connections by name through chatd-egress, beside the same by a
// process of the host, directly and through a CONNECT proxy of net/http, in turn in one run: read
// the ratios. The servers are at the other end of a wire.
//
//	go test ./test/roottest -run - -bench BenchmarkNetwork -benchtime 1x
func BenchmarkNetwork(b *testing.B) {
	o := newInternet(b)
	for _, l := range o.listen(b, "7001") {
		go each(l, func(c net.Conn) {
			n, _ := io.Copy(io.Discard, c)
			fmt.Fprintln(c, n)
		})
	}
	config := &tls.Config{Certificates: []tls.Certificate{selfSigned(b)}}
	for _, l := range o.listen(b, "8443") {
		go func() { _ = http.Serve(tls.NewListener(l, config), http.HandlerFunc(answerHost)) }()
	}
	m := open(b, named(b, "api.example.test:1-65535"))
	a := inmateOf(b, m, "bench", "named")
	proxy := connectProxy(b)
	name, addr := "api.example.test", outsideAddr
	ways := []struct {
		name string
		try  func(testing.TB, ...string) string
		to   string
	}{
		{"direct", asHost, addr}, {"CONNECT proxy", asHost, proxy + "!" + addr}, {"chatd-egress",
			a.try, name},
	}
	t := table{}
	for range envInt("CHATD_BENCH_ROUNDS", 5) {
		for _, way := range ways {
			for _, act := range [][]string{
				{"bench-connect", way.to + ":7000", "50"}, {"bench-stream", way.to + ":7001", "1"},
				{"bench-stream", way.to + ":7001", "8"}, {"bench-requests", way.to + ":8080",
					"300"},
				{"bench-requests-tls", way.to + ":8443", "300"},
			} {
				got := way.try(b, act...)
				ms, err := strconv.ParseFloat(strings.TrimPrefix(got, "ok "), 64)
				if err != nil {
					b.Fatalf("%s, %q: %s", way.name, act, got)
				}
				what := act[0] + " " + act[2] + " "
				t[what+way.name] = append(t[what+way.name], time.Duration(ms*1e6))
			}
		}
	}
	for _, what := range []string{"bench-connect 50 ", "bench-stream 1 ", "bench-stream 8 ",
		"bench-requests 300 ", "bench-requests-tls 300 "} {
		mine := t.median(what + "chatd-egress")
		for _, rival := range []string{"direct", "CONNECT proxy"} {
			theirs := t.median(what + rival)
			fmt.Fprintf(os.Stderr, "%-20s %8.3f ms = %6.2f x %s (%.3f ms)\n",
				what, mine, mine/theirs, rival, theirs)
			b.ReportMetric(mine/theirs, strings.ReplaceAll(what+"/ "+rival, " ", "-"))
		}
	}
	b.ReportMetric(0, "ns/op")
}

// connectProxy is a proxy of the host for CONNECT (RFC 9110, section 9.3.6).
func connectProxy(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to, err := net.Dial("tcp", r.Host)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer to.Close()
			from, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer from.Close()
			_, _ = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
			var both sync.WaitGroup
			both.Go(func() { _, _ = io.Copy(to, from); _ = to.(*net.TCPConn).CloseWrite() })
			both.Go(func() { _, _ = io.Copy(from, to); _ = from.(*net.TCPConn).CloseWrite() })
			both.Wait()
		}))
	}()
	return l.Addr().String()
}

// benchActs print milliseconds.
var benchActs = map[string]act{
	// bench-connect [PROXY!]ADDRESS TIMES: the median of a connection, a line and its answer
	// to an address that was looked up before
	"bench-connect": func(a []string) (string, error) {
		var all []float64
		if host, port, err := net.SplitHostPort(a[0]); err == nil && !strings.Contains(host, "!") {
			addrs, err := net.LookupHost(host)
			if err != nil {
				return "", err
			}
			a[0] = net.JoinHostPort(addrs[0], port)
		}
		for range number(a[1]) {
			began := time.Now()
			c, err := benchDial(a[0])
			if err != nil {
				return "", err
			}
			if _, err := say(c, "x"); err != nil {
				return "", err
			}
			all = append(all, milliseconds(began))
		}
		slices.Sort(all)
		return fmt.Sprintf("%.4f", all[len(all)/2]), nil
	},
	// bench-stream [PROXY!]ADDRESS STREAMS: 256 MB, over so many connections
	"bench-stream": func(a []string) (string, error) {
		n := number(a[1])
		began := time.Now()
		ends := make(chan error, n)
		for range n {
			go func() { ends <- benchSend(a[0], 256<<20/n) }()
		}
		for range n {
			if err := <-ends; err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("%.3f", milliseconds(began)), nil
	},
	// bench-requests [PROXY!]ADDRESS TIMES: requests over one connection, each in mean
	"bench-requests":     func(a []string) (string, error) { return benchRequests(a, false) },
	"bench-requests-tls": func(a []string) (string, error) { return benchRequests(a, true) },
}

func benchRequests(a []string, secure bool) (string, error) {
	c, err := benchDial(a[0])
	if err != nil {
		return "", err
	}
	defer c.Close()
	host, _, _ := net.SplitHostPort(a[0][strings.IndexByte(a[0], '!')+1:])
	if secure {
		c = tls.Client(c, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	}
	r := bufio.NewReader(c)
	began := time.Now()
	for range number(a[1]) {
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return "", err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil ||
			answer.StatusCode != http.StatusOK {
			return "", errors.Join(err, errors.New(answer.Status))
		}
	}
	return fmt.Sprintf("%.4f", milliseconds(began)/float64(number(a[1]))), nil
}

func milliseconds(since time.Time) float64 { return float64(time.Since(since)) / 1e6 }

func benchDial(to string) (net.Conn, error) {
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
