package egress

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/chatd/chatd/internal/uplink"
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
			if strings.Contains(got, strings.ToLower(apiValue[:5])) {
				t.Errorf("the chat has the value: %d %s", a.StatusCode, got)
			}
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
	if _, body := w.do(w.client(true), r); body != "" {
		t.Error(body)
	}
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
