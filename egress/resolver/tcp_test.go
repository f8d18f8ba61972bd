package resolver

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// serve starts ServeTCP, and returns the chat's end of the connection and what it returned.
func (f *fixture) serve(ctx context.Context) (net.Conn, <-chan error) {
	here, there := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- f.ServeTCP(ctx, there) }()
	return here, ended
}

func exchangeTCP(t *testing.T, c net.Conn, query []byte) ([]byte, error) {
	t.Helper()
	if err := writeFrame(c, query); err != nil {
		return nil, err
	}
	return readFrame(c, maxMessage)
}

func TestServeTCP(t *testing.T) {
	f := newFixture(t)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	c := must.Get(net.Dial("tcp", l.Addr().String()))(t)
	there := must.Get(l.Accept())(t)
	ended := make(chan error, 1)
	go func() { ended <- f.ServeTCP(t.Context(), there) }()
	for range 3 {
		answer := must.Get(exchangeTCP(t, c, pack(t, query1("API.example.com", typeA))))(t)
		if m := unpack(t, answer); value(m) != "198.18.1.0" || m.ID != 0xbeef {
			t.Errorf("the answer is %+v %q", m.Header, value(m))
		}
	}
	must.Do(t, c.Close())
	expect.Is(t, <-ended, nil, "it ends with")
}

func TestServeTCPBounds(t *testing.T) {
	packed := pack(t, query1("evil.test", typeA))
	t.Run("queries", func(t *testing.T) {
		f := newFixture(t)
		c, ended := f.serve(t.Context())
		for i := range maxQueries {
			_, err := exchangeTCP(t, c, packed)
			must.True(t, err == nil, "query %d: %v", i+1, err)
		}
		expect.True(t, expect.Err(exchangeTCP(t, c, packed)) != nil,
			"query %d is answered", maxQueries+1)
		wantEnd(t, c, ended, "")
	})
	t.Run("longest", func(t *testing.T) {
		f := newFixture(t)
		c, _ := f.serve(t.Context())
		defer func() { _ = c.Close() }()
		long := append(packed, make([]byte, maxQuery-len(packed))...)
		if answer, err := exchangeTCP(t, c, long); err != nil || unpack(t, answer).RCode != noName {
			t.Errorf("a query of %d bytes: %v", len(long), err)
		}
	})
	t.Run("too long", func(t *testing.T) {
		c, ended := newFixture(t).serve(t.Context())
		must.Get(c.Write([]byte{(maxQuery + 1) >> 8, (maxQuery + 1) & 0xff}))(t)
		wantEnd(t, c, ended, "4097 bytes")
	})
	t.Run("malformed", func(t *testing.T) {
		c, ended := newFixture(t).serve(t.Context())
		must.Get(c.Write([]byte{0, 1, 'x'}))(t)
		wantEnd(t, c, ended, "")
	})
	t.Run("unfinished", func(t *testing.T) {
		c, ended := newFixture(t).serve(t.Context())
		must.Get(c.Write([]byte{0, 100, 'x'}))(t)
		must.Do(t, c.Close())
		expect.True(t, <-ended != nil, "half a query is no error")
	})
}

// wantEnd reads until the other end closes the connection, and compares what ServeTCP returned.
func wantEnd(t *testing.T, c net.Conn, ended <-chan error, want string) {
	t.Helper()
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("then: %x, %v", rest, err)
	}
	err := <-ended
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("it ends with %v, want %q", err, want)
	}
}

// A connection that says nothing, or the same byte for ever, ends.
func TestServeTCPIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ended := newFixture(t).serve(t.Context())
		begin := time.Now()
		wantEnd(t, c, ended, "")
		expect.Equal(t, time.Since(begin), idleTimeout, "it ends after … of the bubble's time")
		c, ended = newFixture(t).serve(t.Context())
		must.Get(c.Write([]byte{1, 0}))(t)
		begin = time.Now()
		for range 100 {
			if _, err := c.Write([]byte{1}); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		if err := <-ended; err != nil || time.Since(begin) > idleTimeout+time.Second {
			t.Errorf("one byte a second: it ends with %v after %s", err, time.Since(begin))
		}
	})
}

func TestServeTCPContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := newFixture(t)
		c, ended := f.serve(ctx)
		must.Get(exchangeTCP(t, c, pack(t, query1(host, typeA))))(t)
		synctest.Wait() // until it reads
		begin := time.Now()
		cancel()
		wantEnd(t, c, ended, "")
		expect.Equal(t, time.Since(begin), 0, "it ends after … of the bubble's time")
	})
}

func TestFrame(t *testing.T) {
	var b bytes.Buffer
	err := writeFrame(&b, make([]byte, maxMessage+1))
	expect.True(t, err != nil && b.Len() <= 0, "a message that is too long is written: %v", err)
	err = writeFrame(&b, []byte("abc"))
	expect.True(t, err == nil && b.String() == "\x00\x03abc", "wrote %q, %v", b.String(), err)
	expect.Equal(t, string(must.Get(readFrame(&b, 3))(t)), "abc", "read")
}
