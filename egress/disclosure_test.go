package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func zipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := io.WriteString(z, s)
	must.True(t, err == nil && z.Close() == nil, "%v", err)
	return b.Bytes()
}

// unzipped is what a chat reads in b, from the first byte of gzip on.
func unzipped(b string) string {
	i := strings.Index(b, "\x1f\x8b")
	if i < 0 {
		return b
	}
	z, err := gzip.NewReader(strings.NewReader(b[i:]))
	if err != nil {
		return b
	}
	text, _ := io.ReadAll(z) // as much as there is
	return string(text)
}

// TestChosenAnswers: servers that show a request's header in the form that the request asks for do
// not show the value to the chat.
func TestChosenAnswers(t *testing.T) {
	key := func(r *http.Request) string { return r.Header.Get("X-Api-Key") }
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		ask   func(r *http.Request)
	}{
		"a compressed message of gRPC": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			z := zipped(t, key(r))
			if r.Header.Get("Grpc-Accept-Encoding") != "" {
				w.Header().Set("Grpc-Encoding", "gzip")
				_, _ = w.Write(append([]byte{1}, z...))
			}
		}, func(r *http.Request) { r.Header.Set("Grpc-Accept-Encoding", "gzip") }},
		"a coding of gRPC that nobody asked for": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Grpc-Encoding", "gzip")
			_, _ = w.Write(zipped(t, key(r)))
		}, nil},
		"two codings": {func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Encoding"] = []string{"identity", "gzip"}
			_, _ = w.Write(zipped(t, key(r)))
		}, nil},
		"the media type of the request": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s%s", b, key(r))
		}, func(r *http.Request) {
			r.Header.Set("Content-Type", "application/grpc")
			r.Body = io.NopCloser(strings.NewReader("\x00\x00\x00\x00\x05"))
		}},
		"UTF-16": {func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Accept"), "utf-16") {
				w.Header().Set("Content-Type", "text/plain;charset=utf-16")
				_ = binary.Write(w, binary.BigEndian, utf16.Encode([]rune(key(r))))
			}
		}, func(r *http.Request) { r.Header.Set("Accept", "text/plain;charset=utf-16") }},
		"the name of a header": {func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-"+key(r)] = []string{"y"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSecretWorld(t, c.serve)
			r := w.request("POST", "/", nil)
			if c.ask != nil {
				c.ask(r)
			}
			a, body := w.do(w.client(true), r)
			text := strings.ReplaceAll(unzipped(body), "\x00", "")
			got := strings.ToLower(fmt.Sprint(a.Header, text))
			expect.True(t, !strings.Contains(got, strings.ToLower(apiValue[:5])),
				"the chat has the value: %d %s", a.StatusCode, got)
		})
	}
}

// TestParts: no range of an answer is asked for with a value, and none is passed on.
func TestParts(t *testing.T) {
	var asked bool
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/part" {
			w.WriteHeader(http.StatusPartialContent)
			return
		}
		asked = asked || r.Header.Get("Range")+r.Header.Get("If-Range") != ""
		text := strings.NewReader("key: " + r.Header.Get("X-Api-Key"))
		http.ServeContent(w, r, "x.txt", time.Time{}, text)
	})
	c := w.client(true)
	r := w.request("GET", "/", nil)
	r.Header.Set("Range", "bytes=5-14")
	if a, body := w.do(c, r); a.StatusCode != 200 || asked || !strings.Contains(body, "*****") {
		t.Errorf("%d %q", a.StatusCode, body)
	}
	if a, _ := w.do(c, w.request("GET", "/part", nil)); a.StatusCode != http.StatusBadGateway {
		t.Errorf("a part that was not asked for: %d", a.StatusCode)
	}
	r = w.request("GET", "/", nil)
	r.Header.Del("X-Api-Key")
	r.Header.Set("Range", "bytes=0-3")
	if a, body := w.do(c, r); a.StatusCode != 206 || body != "key:" {
		t.Errorf("without a value: %d %q", a.StatusCode, body)
	}
}

// TestSeveralFields: a server may join fields of one name, so a placeholder among several is left.
func TestSeveralFields(t *testing.T) {
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(fmt.Sprint(r.Header), apiValue) {
			fmt.Fprint(w, "it has the value")
		}
	})
	r := w.request("GET", "/", nil)
	r.Header["X-Api-Key"] = []string{"xxxx", placeholder}
	_, body := w.do(w.client(true), r)
	expect.True(t, body == "", "%v", body)
}

// TestGrantGone: an answer under way has no value when the chat's secrets are gone meanwhile.
func TestGrantGone(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-answer
		fmt.Fprint(w, r.Header.Get("X-Api-Key"))
	})
	go func() {
		<-arrived
		w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: w.n.allowed()})
		answer <- true
	}()
	_, body := w.do(w.client(true), w.request("GET", "/", nil))
	expect.Equal(t, body, strings.Repeat("*", len(apiValue)), "")
}

// TestQuotedError: an error that quotes what a server sent does not show the value.
func TestQuotedError(t *testing.T) {
	const value = `sk-"0123"\456789abcdef`
	w := &secretWorld{world: newWorld(t)}
	w.begin("x-api-key: $", listenTCP(t, answering(t, "HTTP/1.1 "+value+"\r\n\r\n")))
	w.setValue("x-api-key: $", value)
	_, body := w.do(w.client(false), w.request("GET", "/", nil))
	expect.True(t, !strings.Contains(body, "0123"), "%v", body)
}

const (
	apiHost     = "api.example.org"
	apiValue    = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
	placeholder = secret.Prefix + "00112233445566778899aabbccddeeff"
	anothers    = secret.Prefix + "ffeeddccbbaa99887766554433221100" // another chat's
)

// authorities are chatd's own and that of the servers outside.
var authorities = sync.OnceValue(func() (a struct{ own, outside *gateway.Authority }) {
	var err1, err2 error
	a.own, err1 = gateway.NewAuthority([]byte("own"), time.Now())
	a.outside, err2 = gateway.NewAuthority([]byte("outside"), time.Now())
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	return a
})

func pool(t testing.TB, a *gateway.Authority) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	must.True(t, p.AppendCertsFromPEM(a.Certificate()), "no certificate")
	return p
}

func leaf(t testing.TB, a *gateway.Authority, host string) tls.Certificate {
	t.Helper()
	b := must.Get(a.Issue(host, time.Now()))(t)
	c := must.Get(tls.X509KeyPair(b, b))(t)
	return c
}

// certificate answers as chatd-root: for hosts of the example alone.
func (r *fakeRoot) certificate(c uplink.Call) (*os.File, error) {
	r.mu.Lock()
	silent := r.silent
	r.mu.Unlock()
	if silent != nil {
		<-silent
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse || !strings.HasSuffix(c.Host, ".example.org") {
		return nil, errors.New("no secret for it")
	}
	b, err := authorities().own.Issue(c.Host, time.Now())
	if err != nil {
		return nil, err
	}
	return sys.MemFile("certificate", b)
}

// secretWorld is a world with a chat that has a secret for a server outside.
type secretWorld struct {
	*world
	n    *network
	addr netip.AddrPort
}

// newSecretWorld begins a server with the handler, and opens the chat one.
func newSecretWorld(t testing.TB, h http.HandlerFunc) *secretWorld {
	t.Helper()
	w := &secretWorld{world: newWorld(t)}
	w.addr = serveTLS(t, apiHost, h, nil)
	w.begin("x-api-key: $", w.addr)
	return w
}

// begin opens the chat one with a secret for api.example.org at addr.
func (w *secretWorld) begin(header string, addr netip.AddrPort) {
	w.t.Helper()
	w.s.terminator.roots.Store(pool(w.t, authorities().outside))
	w.addr = addr
	w.setValue(header, apiValue)
	w.dns.set(apiHost, addr.Addr().String())
	w.dns.set("other.example.org", addr.Addr().String())
	port := ":" + portOf(addr)
	w.call(uplink.Call{Verb: uplink.Open, Chat: one, Grants: []secret.Grant{{Name: "api",
		Placeholder: placeholder}}, Allow: list(w.t, apiHost+port, "other.example.org"+port,
		addr.String())}, w.files()...)
	w.n = w.s.network(one)
}

func portOf(a netip.AddrPort) string { _, p, _ := net.SplitHostPort(a.String()); return p }

// setValue tells of the secret with a value, and of authorities; an empty file changes none.
func (w *secretWorld) setValue(header, value string, roots ...*os.File) {
	w.t.Helper()
	h, err := secret.ParseHeader(header)
	must.Do(w.t, err)
	k := secret.Known{Name: "api", Spec: secret.Spec{Hosts: list(w.t, apiHost+":"+portOf(w.addr)),
		Header: h}}
	if value != "" {
		if k.Value, err = secret.ParseValue([]byte(value)); err != nil {
			w.t.Fatal(err)
		}
	}
	b := must.Get(secret.Pack([]secret.Known{k}))(w.t)
	f := must.Get(sys.MemFile("secrets", b))(w.t)
	if len(roots) == 0 {
		none := must.Get(sys.MemFile("roots", nil))(w.t)
		roots = []*os.File{none}
	}
	w.call(uplink.Call{Verb: uplink.Secrets}, append([]*os.File{f}, roots...)...)
}

// serveTLS is a server of the test with a certificate for a host; change may be nil.
func serveTLS(
	t testing.TB, host string, h http.HandlerFunc, change func(*tls.Config),
) netip.AddrPort {
	t.Helper()
	l := must.Get(net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	config := &tls.Config{Certificates: []tls.Certificate{leaf(t, authorities().outside, host)},
		NextProtos: []string{"h2", "http/1.1"}}
	if change != nil {
		change(config)
	}
	s := &http.Server{Handler: h, TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { s.Close(); <-done })
	return addrOf(l.Addr())
}

// dialAPI is a connection of the chat to a host.
func (w *secretWorld) dialAPI(host string) *net.TCPConn {
	return w.dial(w.n, w.named(w.n, host, w.addr.Port()))
}

// client is one of the chat, which trusts chatd's authority alone, and speaks one protocol.
func (w *secretWorld) client(http2 bool) *http.Client {
	w.t.Helper()
	p := new(http.Protocols)
	p.SetHTTP1(!http2)
	p.SetHTTP2(http2)
	tr := &http.Transport{
		Protocols: p, DisableCompression: true,
		TLSClientConfig: &tls.Config{RootCAs: pool(w.t, authorities().own)},
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return w.dialAPI(host), nil
		},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// request is one to the secret's host, with the placeholder in its header.
func (w *secretWorld) request(method, path string, body io.Reader) *http.Request {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), guard)
	w.t.Cleanup(cancel)
	url := "https://" + apiHost + ":" + portOf(w.addr) + path
	r := must.Get(http.NewRequestWithContext(ctx, method, url, body))(w.t)
	r.Header.Set("X-Api-Key", placeholder)
	return r
}

// do sends a request and reads the whole answer.
func (w *secretWorld) do(c *http.Client, r *http.Request) (*http.Response, string) {
	w.t.Helper()
	a := must.Get(c.Do(r))(w.t)
	defer a.Body.Close()
	b := must.Get(io.ReadAll(a.Body))(w.t)
	return a, string(b)
}

// bothProtocols runs a test over HTTP/1.1 and over HTTP/2.
func bothProtocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Run("HTTP1", func(t *testing.T) { test(t, false) })
	t.Run("HTTP2", func(t *testing.T) { test(t, true) })
}
