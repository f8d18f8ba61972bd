package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const (
	fin, textFrame, more, ping = 0x80, 0x01, 0x00, 0x09
)

// frame is one of a WebSocket server, of at most 125 bytes.
func frame(op byte, payload string) []byte {
	return append([]byte{op, byte(len(payload))}, payload...)
}

// wantScrubbed checks that what the chat got has no value, and asterisks in its place.
func wantScrubbed(t *testing.T, what, got string) {
	t.Helper()
	stars := strings.Repeat("*", len(apiValue))
	expect.True(t, !strings.Contains(got, apiValue) && strings.Contains(got, stars),
		"%s: %.300q", what, got)
}

// TestEchoes: a server that sends the value back, wherever in an answer.
func TestEchoes(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w := newSecretWorld(t, echoSecret)
		c := w.client(http2)
		c.Transport.(*http.Transport).DisableCompression = false
		for _, path := range []string{"/header", "/body", "/chunks", "/bytes", "/gzip", "/trailer",
			"/undeclared-trailer", "/redirect", "/status", "/early"} {
			r := w.request("GET", path, nil)
			var early []string
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
					early = append(early, fmt.Sprint(h))
					return nil
				}}))
			a, body := w.do(c, r)
			wantScrubbed(t, path, fmt.Sprint(a.Status, a.Header, a.Trailer, early, body))
		}
		// What asks for nothing that can be looked into gets nothing else.
		r := w.request("GET", "/brotli", nil)
		r.Header.Set("Accept-Encoding", "br, zstd")
		if a, body := w.do(c, r); a.StatusCode != http.StatusBadGateway {
			t.Errorf("a coding that nobody asked for: %d %q", a.StatusCode, body)
		}
		r = w.request("GET", "/codings", nil)
		r.Header.Set("Accept-Encoding", "br, zstd")
		_, body := w.do(c, r)
		expect.True(t, body == "identity", "the server is asked for %q", body)
		r.Header.Set("Accept-Encoding", "gzip, deflate, br")
		_, body = w.do(c, r)
		expect.True(t, body == "gzip", "the server is asked for %q", body)
	})
}

func echoSecret(w http.ResponseWriter, r *http.Request) {
	v := r.Header.Get("X-Api-Key")
	switch r.URL.Path {
	case "/header":
		w.Header().Set("X-Got", "it is "+v)
	case "/body":
		fmt.Fprintf(w, "<%s%s>", v, v)
	case "/chunks", "/bytes":
		step := 5
		if r.URL.Path == "/bytes" {
			step = 1
		}
		for rest := v; rest != ""; rest = rest[min(step, len(rest)):] {
			_, _ = io.WriteString(w, rest[:min(step, len(rest))])
			_ = http.NewResponseController(w).Flush()
		}
	case "/gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, v)
		_ = z.Close()
	case "/brotli":
		w.Header().Set("Content-Encoding", "br")
		fmt.Fprint(w, v)
	case "/trailer":
		w.Header().Set("Trailer", "X-Got")
		fmt.Fprint(w, "body")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Got", v)
	case "/undeclared-trailer":
		fmt.Fprint(w, strings.Repeat("*", len(v)), "body")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"X-Got", v)
	case "/redirect":
		w.Header().Set("Location", "https://other.example.org/?k="+v)
		w.WriteHeader(http.StatusFound)
	case "/status":
		http.Error(w, "bad key "+v, http.StatusUnauthorized)
	case "/early":
		w.Header().Set("Link", "</"+v+">")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
	case "/codings":
		fmt.Fprint(w, r.Header.Get("Accept-Encoding"))
	}
}

// TestBrokenServer: what net/http says of an answer that it cannot read shows no value.
func TestBrokenServer(t *testing.T) {
	w := &secretWorld{world: newWorld(t)}
	w.begin("x-api-key: $", listenTCP(t, answering(t, "HTTP/1.1 "+apiValue+"\r\n\r\n")))
	c := w.client(false)
	a, body := w.do(c, w.request("GET", "/", nil))
	expect.Equal(t, a.StatusCode, http.StatusBadGateway, "")
	wantScrubbed(t, "the answer", body)
	c.CloseIdleConnections()
	wantScrubbed(t, "the event", w.event(Failed, "malformed").Why)
}

// answering answers each connection with a text after the first request.
func answering(t *testing.T, text string) func(*net.TCPConn) {
	config := &tls.Config{Certificates: []tls.Certificate{leaf(t, authorities().outside, apiHost)}}
	return func(raw *net.TCPConn) {
		c := tls.Server(raw, config)
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, text)
		}
	}
}

// TestServerSentEvents: each event arrives before the next one is sent.
func TestServerSentEvents(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		next := make(chan int)
		w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range next {
				fmt.Fprintf(w, "data: %d %s\n\n", i, r.Header.Get("X-Api-Key"))
				_ = http.NewResponseController(w).Flush()
			}
		})
		r := w.request("GET", "/", nil)
		go func() { next <- 0 }()
		a := must.Get(w.client(http2).Do(r))(t)
		defer a.Body.Close()
		lines := bufio.NewReader(a.Body)
		for i := range 5 {
			if i > 0 {
				next <- i
			}
			line, err := lines.ReadString('\n')
			want := fmt.Sprintf("data: %d %s\n", i, strings.Repeat("*", len(apiValue)))
			expect.True(t, err == nil && line == want, "%q, %v", line, err)
			_, _ = lines.ReadString('\n')
		}
		close(next)
	})
}

// TestAnswerInParts: a part of an answer of known length arrives before the next one is sent.
func TestAnswerInParts(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		next := make(chan string, 2)
		defer close(next)
		w := newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			for part := range next {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		})
		next <- ""
		a := must.Get(w.client(http2).Do(w.request("GET", "/", nil)))(t)
		defer a.Body.Close()
		for range 2 {
			next <- "\n"
			expect.NoError(t, expect.Err(io.ReadFull(a.Body, make([]byte, 1))))
		}
	})
}

// TestWebSocket: an upgraded connection goes on both ways, without extensions and without the
// value.
func TestWebSocket(t *testing.T) {
	got := make(chan http.Header, 1)
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		c, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		v := r.Header.Get("X-Api-Key")
		fmt.Fprintf(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
			"Upgrade: websocket\r\nX-Got: %s\r\n\r\n", v)
		_, _ = b.Write(frame(textFrame, "key "+v[:10]))
		_, _ = b.Write(frame(fin|ping, v))
		_, _ = b.Write(frame(fin|more, v[10:]))
		_ = b.Flush()
		line, _ := b.ReadString('\n')
		_, _ = b.Write(frame(fin|textFrame, line+v[:1])) // ends like the beginning of the value
		_ = b.Flush()
		_, _ = b.ReadString('\n') // the end
	})
	c := tls.Client(w.dialAPI(apiHost), &tls.Config{ServerName: apiHost,
		RootCAs: pool(t, authorities().own), NextProtos: []string{"http/1.1"}})
	defer c.Close()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s:%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Version: 13\r\n"+
		"X-Api-Key: %s\r\n\r\n", apiHost, portOf(w.addr), placeholder)
	b := bufio.NewReader(c)
	a, err := http.ReadResponse(b, nil)
	must.True(t, err == nil && a.StatusCode == http.StatusSwitchingProtocols, "%+v, %v", a, err)
	wantScrubbed(t, "the header", a.Header.Get("X-Got"))
	h := <-got
	if h.Get("X-Api-Key") != apiValue || h.Get("Sec-Websocket-Extensions") != "" ||
		h.Get("Sec-Websocket-Version") != "13" {
		t.Errorf("the server got %v", h)
	}
	stars := strings.Repeat("*", len(apiValue))
	want := bytes.Join([][]byte{frame(textFrame, "key "+stars[:10]), frame(fin|ping, stars),
		frame(fin|more, stars[10:])}, nil)
	read := make([]byte, len(want))
	_, err = io.ReadFull(b, read)
	expect.True(t, err == nil && bytes.Equal(read, want), "%q, %v, want %q", read, err, want)
	fmt.Fprint(c, "hello\n")
	want = frame(fin|textFrame, "hello\n"+apiValue[:1])
	read = make([]byte, len(want))
	_, err = io.ReadFull(b, read)
	expect.True(t, err == nil && bytes.Equal(read, want), "%q, %v, want %q", read, err, want)
}

// TestOtherUpgrades: no other protocol is switched to.
func TestOtherUpgrades(t *testing.T) {
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q", r.Header.Get("Upgrade"), r.Header.Get("Connection"))
	})
	for _, protocol := range []string{"h2c", "tcp", "websocket, h2c", "TLS/1.3"} {
		r := w.request("GET", "/", nil)
		r.Header.Set("Upgrade", protocol)
		r.Header.Set("Connection", "Upgrade")
		_, body := w.do(w.client(false), r)
		expect.True(t, body == `"" ""`, "%s: %s", protocol, body)
	}
}

// TestUpload: what is sent is not kept: far more than the memory that is used meanwhile.
func TestUpload(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		size := int64(100 << 20)
		if testing.Short() {
			size = 48 << 20
		}
		var peak atomic.Uint64
		w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
			sum := sha256.New()
			n, _ := io.Copy(sum, &sampled{r.Body, &peak})
			fmt.Fprintf(w, "%d %x", n, sum.Sum(nil))
		})
		sum := sha256.New()
		block := make([]byte, 1<<20)
		rand.Read(block)
		body := io.TeeReader(io.LimitReader(repeated{block}, size), sum)
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, got := w.do(w.client(http2), w.request("PUT", "/", io.NopCloser(body)))
		want := fmt.Sprintf("%d %s", size, hex.EncodeToString(sum.Sum(nil)))
		expect.True(t, got == want, "%s, want %s", got, want)
		used := int64(peak.Load()) - int64(before.HeapInuse)
		expect.True(t, used <= size/3, "%d MiB were used", used>>20)
	})
}

// repeated is a block without end.
type repeated struct{ block []byte }

func (r repeated) Read(p []byte) (int, error) { return copy(p, r.block), nil }

// sampled notes the largest heap while it is read.
type sampled struct {
	io.Reader
	peak *atomic.Uint64
}

func (s *sampled) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if n > 0 && p[0]&0x1f == 0 { // now and then
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.peak.Store(max(s.peak.Load(), m.HeapInuse))
	}
	return n, err
}

// TestTerminatedBound: a chat has requests on this many connections at a time, and more wait.
func TestTerminatedBound(t *testing.T) {
	w, finish := slowWorld(t)
	for range maxSessions {
		w.ask(w.client(true), w.n)
	}
	done := make(chan string, 1)
	c, r := w.client(true), w.request("GET", "/", nil)
	go func() {
		a, err := c.Do(r)
		if err == nil {
			a.Body.Close()
		}
		done <- fmt.Sprint(err)
	}()
	select {
	case err := <-done:
		t.Fatal("it did not wait: ", err)
	case <-time.After(100 * time.Millisecond): // a hint: it may not have begun
	}
	close(finish)
	expect.Equal(t, <-done, "<nil>", "")
}

// TestIdleGivesWay: connections without a request keep none from a chat's others.
func TestIdleGivesWay(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	for range maxSessions + 10 {
		w.do(w.client(true), w.request("GET", "/", nil))
	}
	plain := newWorld(t)
	o := newOrigin(t, nil)
	var all []*bufio.Reader
	var idle []*net.TCPConn
	request := "GET / HTTP/1.1\r\nHost: " + o.host + "\r\n\r\n"
	c := plain.byName("api.example.org", o.addr)
	n := plain.s.network(one)
	for range maxSessions + 10 {
		b := send(t, c, request)
		answer(t, b, 200)
		all, idle = append(all, b), append(idle, c)
		c = plain.dial(n, plain.named(n, "api.example.org", o.addr.Port()))
	}
	for i, b := range all { // and go on
		send(t, idle[i], request)
		answer(t, b, 200)
	}
}

// TestStreams: many requests at once over one connection, to a server that speaks HTTP/1 alone.
func TestStreams(t *testing.T) {
	w := &secretWorld{world: newWorld(t)}
	w.begin("x-api-key: $", serveTLS(t, apiHost, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Api-Key") == apiValue, r.Proto)
	}, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }))
	c := w.client(true)
	var requests []*http.Request
	for range 100 {
		requests = append(requests, w.request("GET", "/", nil))
	}
	var all sync.WaitGroup
	for _, r := range requests {
		all.Go(func() {
			a, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			if b, err := io.ReadAll(a.Body); err != nil || string(b) != "trueHTTP/1.1" {
				t.Errorf("%d %q, %v", a.StatusCode, b, err)
			}
		})
	}
	all.Wait()
}

// TestSecureMemory: connections whose streams are all full of headers cost no more than what is
// counted for them, with the client and the server of the test, which hold as much each.
func TestSecureMemory(t *testing.T) {
	const sample, parties = 4, 2
	fill := func(h http.Header) {
		for i := range maxFields - 16 {
			h.Add(fmt.Sprintf("X-%d", i), strings.Repeat("v", maxSecretHeader/maxFields-40))
		}
	}
	var arrived sync.WaitGroup
	stay := make(chan struct{})
	w := newSecretWorld(t, func(o http.ResponseWriter, r *http.Request) {
		fill(o.Header())
		o.WriteHeader(200)
		_ = http.NewResponseController(o).Flush()
		arrived.Done()
		<-stay
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	arrived.Add(sample * maxStreams)
	var all sync.WaitGroup
	for range sample {
		c := w.client(true)
		for range maxStreams {
			r := w.request("GET", "/", nil)
			fill(r.Header)
			all.Go(func() {
				a, err := c.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				a.Body.Close()
			})
		}
	}
	arrived.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	close(stay)
	all.Wait()
	each := int64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse) / sample
	t.Logf("%d KiB a connection, of which some half is chatd-egress's", each>>10)
	expect.True(t, each <= parties*streamsCost,
		"a connection takes %d KiB, want at most %d", each>>10, parties*streamsCost>>10)
}
