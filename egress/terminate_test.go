package egress

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSecret: the server gets the value in the header of the secret, and the chat never does.
func TestSecret(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		var got sync.Map
		w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
			got.Store(r.URL.Path, r)
			w.Header().Set("X-Proto", r.Proto)
			fmt.Fprint(w, "hello ", r.Header.Get("X-Api-Key"))
		})
		a, body := w.do(w.client(http2), w.request("GET", "/v1?a=b;c", nil))
		want := "hello " + strings.Repeat("*", len(apiValue))
		expect.True(t, a.StatusCode == 200 && body == want && a.ContentLength == int64(len(want)),
			"%d %q, %d", a.StatusCode, body, a.ContentLength)
		proto := "HTTP/1.1"
		if http2 {
			proto = "HTTP/2.0"
		}
		if a.Proto != proto || a.Header.Get("X-Proto") != proto {
			t.Errorf("the chat speaks %s, the server %s", a.Proto, a.Header.Get("X-Proto"))
		}
		v, _ := got.Load("/v1")
		r := v.(*http.Request)
		if r.Header.Get("X-Api-Key") != apiValue || r.URL.RawQuery != "a=b;c" ||
			r.Host != apiHost+":"+portOf(w.addr) || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("the server got %v %v", r.URL, r.Header)
		}
	})
}

// TestPlaceholderElsewhere: nothing but the whole form in its header is replaced, and only by the
// chat's own placeholder.
func TestPlaceholderElsewhere(t *testing.T) {
	var seen, body string
	var mu sync.Mutex
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		b, _ := io.ReadAll(r.Body)
		seen, body = fmt.Sprint(r.RequestURI, r.Header, r.Trailer), string(b)
	})
	c := w.client(false)
	for name, change := range map[string]func(*http.Request){
		"another chat's": func(r *http.Request) { r.Header.Set("X-Api-Key", anothers) },
		"none":           func(r *http.Request) { r.Header.Del("X-Api-Key") },
		"another header": func(r *http.Request) { r.Header.Set("X-Other", placeholder) },
		"Authorization": func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer "+placeholder)
		},
		"more than it": func(r *http.Request) { r.Header.Set("X-Api-Key", placeholder+"x") },
		"less":         func(r *http.Request) { r.Header.Set("X-Api-Key", placeholder[:20]) },
		"twice in one": func(r *http.Request) {
			r.Header.Set("X-Api-Key", placeholder+","+placeholder)
		},
		"capitals": func(r *http.Request) {
			r.Header.Set("X-Api-Key", strings.ToUpper(placeholder))
		},
		"in the query": func(r *http.Request) { r.URL.RawQuery = "k=" + placeholder },
		"in the path":  func(r *http.Request) { r.URL.Path = "/" + placeholder },
		"in a cookie":  func(r *http.Request) { r.Header.Set("Cookie", "k="+placeholder) },
		"hidden by itself": func(r *http.Request) {
			r.Header.Set("X-Api-Key", placeholder)
			r.Header.Set("Connection", "X-Api-Key")
		},
	} {
		r := w.request("POST", "/", strings.NewReader("body "+placeholder))
		r.Header.Set("X-Api-Key", "other")
		change(r)
		w.do(c, r)
		mu.Lock()
		expect.True(t, !strings.Contains(seen+body, apiValue) && body == "body "+placeholder,
			"%s: %s, %s", name, seen, body)
		mu.Unlock()
	}
	r := w.request("POST", "/", strings.NewReader("control "+placeholder))
	w.do(c, r)
	mu.Lock()
	defer mu.Unlock()
	expect.True(t, strings.Contains(seen, apiValue) && body == "control "+placeholder,
		"control: %s, %s", seen, body)
}

// TestBasic: the placeholder is found in credentials that are encoded, and the value with its
// encoded form does not come back.
func TestBasic(t *testing.T) {
	w := &secretWorld{world: newWorld(t)}
	answer := func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		ok := user == "bot" && password == apiValue
		fmt.Fprintf(w, "%t %s %s", ok, r.Header.Get("Authorization"), password)
	}
	w.begin("Authorization: Basic bot:$", serveTLS(t, apiHost, answer, nil))
	r := w.request("GET", "/", nil)
	r.SetBasicAuth("bot", placeholder)
	_, body := w.do(w.client(true), r)
	encoded := base64.StdEncoding.EncodeToString([]byte("bot:" + apiValue))
	if !strings.HasPrefix(body, "true Basic ****") || strings.Contains(body, apiValue) ||
		strings.Contains(body, encoded) {
		t.Error(body)
	}
}

// TestOtherHosts: TLS to a host without a secret is not touched, so its own certificate is seen,
// and so it is for a chat without the secret.
func TestOtherHosts(t *testing.T) {
	w := &secretWorld{world: newWorld(t)}
	var keys []string
	var mu sync.Mutex
	addr := serveTLS(t, apiHost, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("X-Api-Key"))
	}, func(c *tls.Config) {
		c.Certificates = append(c.Certificates, leaf(t, authorities().outside, "other.example.org"))
	})
	w.begin("x-api-key: $", addr)
	c := w.client(true)
	r := w.request("GET", "/", nil)
	r.URL.Host = "other.example.org:" + portOf(addr)
	_, err := c.Do(r)
	expect.True(t, err != nil && strings.Contains(err.Error(), "unknown authority"), "another host: %v", err)
	c.Transport.(*http.Transport).TLSClientConfig.RootCAs = pool(t, authorities().outside)
	w.do(c, r)
	// The chat two has the same list and no secret.
	w.call(uplink.Call{Verb: uplink.Open, Chat: two, Allow: w.n.allowed()}, w.files()...)
	w.n = w.s.network(two)
	w.do(c, w.request("GET", "/", nil))
	mu.Lock()
	defer mu.Unlock()
	expect.True(t, len(keys) == 2 && keys[0] == placeholder && keys[1] == placeholder, "%q", keys)
}

// TestGrantsChange: a chat that loses the secret is carried as it is, and one that gets it is not.
func TestGrantsChange(t *testing.T) {
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("X-Api-Key") == apiValue)
	})
	c := w.client(false)
	_, body := w.do(c, w.request("GET", "/", nil))
	expect.True(t, body == "true", "%v", body)
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: w.n.allowed()})
	if _, body := w.do(c, w.request("GET", "/", nil)); body != "false" { // over the open connection
		t.Error(body)
	}
	w.call(uplink.Call{Verb: uplink.Change, Chat: one, Allow: w.n.allowed(),
		Grants: []secret.Grant{{Name: "api", Placeholder: anothers}}})
	r := w.request("GET", "/", nil)
	r.Header.Set("X-Api-Key", anothers)
	_, body = w.do(c, r)
	expect.True(t, body == "true", "%v", body)
}

// TestRotation: the next request has the new value; the former one is still taken out of answers.
func TestRotation(t *testing.T) {
	const next = "sk-next-9876543210"
	var kept atomic.Bool
	w := newSecretWorld(t, func(w http.ResponseWriter, r *http.Request) {
		kept.Store(r.Header.Get("X-Api-Key") == apiValue)
		fmt.Fprintf(w, "%t %s %s", r.Header.Get("X-Api-Key") == next, apiValue, next)
	})
	c := w.client(true)
	if _, body := w.do(c, w.request("GET", "/", nil)); !strings.HasPrefix(body, "false ***") {
		t.Error(body)
	}
	w.setValue("x-api-key: $", "") // its file cannot be read for a while
	if _, body := w.do(c, w.request("GET", "/", nil)); !kept.Load() {
		t.Errorf("without its file: %q", body)
	}
	for range 2 { // read again without a change
		w.setValue("x-api-key: $", next)
		_, body := w.do(c, w.request("GET", "/", nil))
		expect.Equal(t, body, "true "+strings.Repeat("*", len(apiValue))+" "+strings.Repeat("*", len(next)),
			"")
	}
	w.s.secrets.set(nil) // forgets what was
	w.setValue("x-api-key: $", "")
	a, body := w.do(c, w.request("GET", "/", nil))
	expect.True(t, a.StatusCode == http.StatusBadGateway && strings.Contains(body, "no value"),
		"never with a value: %d %s", a.StatusCode, body)
}

// TestRequestsLie: each request of a connection has to be to its name, in HTTP/2 too.
func TestRequestsLie(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		var hosts []string
		var mu sync.Mutex
		w := newSecretWorld(t, func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			hosts = append(hosts, r.Host)
		})
		c := w.client(http2)
		w.do(c, w.request("GET", "/", nil))
		for _, host := range []string{"other.example.org", apiHost + ":1", "127.0.0.1",
			"x." + apiHost} {
			r := w.request("GET", "/", nil)
			r.Host = host
			if a, body := w.do(c, r); a.StatusCode != http.StatusMisdirectedRequest {
				t.Errorf("%s: %d %s", host, a.StatusCode, body)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		expect.True(t, len(hosts) == 1, "the server got %q", hosts)
	})
}

// TestClientDowngrade: no TLS before 1.2 for the chat, and no other name than the address's.
func TestClientDowngrade(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		c := tls.Client(w.dialAPI(apiHost), &tls.Config{ServerName: apiHost, MinVersion: version,
			MaxVersion: version, RootCAs: pool(t, authorities().own)})
		expect.True(t, c.Handshake() != nil, "%x", version)
		w.event(Allowed, "")
	}
	c := w.dialAPI(apiHost)
	_ = tls.Client(c, &tls.Config{ServerName: "other.example.org"}).Handshake()
	w.event(Refused, "other.example.org")
}

// TestServers: the value goes to no server that does not prove its name by the host's store, or
// speaks an old TLS.
func TestServers(t *testing.T) {
	unknown := must.Get(gateway.NewAuthority([]byte("unknown"), time.Now()))(t)
	for name, change := range map[string]func(*tls.Config){
		"another name": func(c *tls.Config) {
			c.Certificates = []tls.Certificate{leaf(t, authorities().outside, "other.example.org")}
		},
		"an unknown authority": func(c *tls.Config) {
			c.Certificates = []tls.Certificate{leaf(t, unknown, apiHost)}
		},
		"chatd's own authority": func(c *tls.Config) {
			c.Certificates = []tls.Certificate{leaf(t, authorities().own, apiHost)}
		},
		"TLS 1.1": func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		},
		"TLS 1.0": func(c *tls.Config) {
			c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS10
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &secretWorld{world: newWorld(t)}
			w.begin("x-api-key: $", serveTLS(t, apiHost, func(http.ResponseWriter, *http.Request) {
				t.Error("the server got a request")
			}, change))
			c := w.client(false)
			a, body := w.do(c, w.request("GET", "/", nil))
			expect.True(t, a.StatusCode == http.StatusBadGateway && strings.Contains(body, "cannot reach"),
				"%d %s", a.StatusCode, body)
			c.CloseIdleConnections()
			w.event(Failed, "tls: ")
		})
	}
}

// TestAuthoritiesChange: a server whose authority the host has come to trust is spoken to, without
// another start of chatd-egress. A file of authorities without any changes nothing.
func TestAuthoritiesChange(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	w.s.terminator.roots.Store(x509.NewCertPool())
	for _, x := range []struct {
		pem  string
		code int
	}{{"", http.StatusBadGateway}, {string(authorities().outside.Certificate()), http.StatusOK},
		{"", http.StatusOK}} {
		f := must.Get(sys.MemFile("roots", []byte(x.pem)))(t)
		w.setValue("x-api-key: $", apiValue, f)
		if a, body := w.do(w.client(false), w.request("GET", "/", nil)); a.StatusCode != x.code {
			t.Errorf("after %d bytes of authorities: %d %s", len(x.pem), a.StatusCode, body)
		}
	}
}

// TestNoCertificate: where chatd-root gives none, the connection is reset, and that is told.
func TestNoCertificate(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	r := w.newRoot() // replaces the other
	r.mu.Lock()
	r.refuse = true
	r.mu.Unlock()
	c := w.dialAPI(apiHost)
	err := tls.Client(c, &tls.Config{ServerName: apiHost,
		RootCAs: pool(t, authorities().own)}).Handshake()
	expect.True(t, err != nil && strings.Contains(err.Error(), "reset"), "%v", err)
	w.event(Failed, "cannot get a certificate")
}

// certificates is how often chatd-root was asked for one.
func (w *secretWorld) certificates() (asked int) {
	w.root.mu.Lock()
	defer w.root.mu.Unlock()
	for _, c := range w.root.sockets {
		if c.Verb == uplink.Certificate {
			asked++
		}
	}
	return asked
}

// TestCertificateIsKept: chatd-root is asked for each host once. A kept certificate that does not
// hold by the clock as it is now,
// which was set ahead or back, is shown to no client.
func TestCertificateIsKept(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	for range 3 {
		w.do(w.client(true), w.request("GET", "/", nil))
	}
	kept := w.s.terminator.leaves.kept[apiHost]
	for i, years := range []int{-1, 1} {
		aged := *kept.Leaf
		aged.NotBefore = aged.NotBefore.AddDate(years, 0, 0)
		aged.NotAfter = aged.NotAfter.AddDate(years, 0, 0)
		w.s.terminator.leaves.kept[apiHost] = &tls.Certificate{Certificate: kept.Certificate,
			PrivateKey: kept.PrivateKey, Leaf: &aged}
		w.do(w.client(true), w.request("GET", "/", nil))
		got := w.certificates()
		expect.True(t, got == i+2, "of a clock %d years off: it was asked %d times", years, got)
	}
}
