package roottest

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chatd/chatd/test/expect"
)

// holdActs hold connections.
var holdActs = map[string]act{
	// hold-connections ADDRESS TIMES SECONDS: opens them all and keeps them for so long
	"hold-connections": func(a []string) (string, error) {
		var all sync.WaitGroup
		end := time.Now().Add(time.Duration(number(a[2])) * time.Second)
		for range number(a[1]) {
			all.Go(func() {
				c, err := (&net.Dialer{Deadline: end}).Dial("tcp", a[0])
				if err == nil {
					_ = c.SetDeadline(end)
					_, _ = c.Read(make([]byte, 1))
					_ = c.Close()
				}
			})
		}
		all.Wait()
		return "held", nil
	},
}

// TestAttackManyConnections: a chat that opens 10,000 connections has 512, and another chat
// connects meanwhile. Without chatd-egress, they all stand.
func TestAttackManyConnections(t *testing.T) {
	out := newInternet(t)
	var now, most atomic.Int64
	for _, l := range out.listen(t, "7002") {
		go each(l, func(c net.Conn) {
			n := now.Add(1)
			defer now.Add(-1)
			if n > 512 { // some may have ended of which no goroutine knows yet
				n = min(n, out.standing(t, 7002))
			}
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			_, _ = c.Read(make([]byte, 1))
		})
	}
	m := open(t, named(t, append(usual, "api.example.test:7002")...))
	a, b := inmateOf(t, m, "many a", "named"), inmateOf(t, m, "many b", "named")
	var got string
	for hold := 5; ; hold *= 2 { // until it has its share in that time
		done := make(chan string, 1)
		go func() {
			done <- a.try(t, "hold-connections", "api.example.test:7002", "10000", strconv.Itoa(hold))
		}()
		until(t, "A has its share", func() bool { return now.Load() >= 500 || len(done) > 0 })
		outcomes(t, "B meanwhile", b.try(t, "say", "api.example.test:7000", "x"), "ok")
		got = <-done
		if most.Load() >= 400 || !strings.HasPrefix(got, "ok") || hold > int(longEnough.Seconds()) {
			break
		}
	}
	// Where chatd-egress gets no CPU time, connections wait in the chat until their memory is more
	// than the layer sockets lets it have: then its session ends.
	outcomes(t, "A", got, "ok SIGKILL")
	if n := most.Load(); n > 512 || n < 400 && strings.HasPrefix(got, "ok") {
		t.Errorf("A had %d connections, want 512", n)
	}
	if strings.HasPrefix(got, "ok") {
		outcomes(t, "A afterwards", a.try(t, "say", "api.example.test:7000", "x"), "ok")
	}
	most.Store(0)
	outcomes(t, "control", asHost(t, "hold-connections", outsideAddr+":7002", "1500", "5"), "ok")
	if n := most.Load(); n <= 512 {
		t.Errorf("control: %d connections stood", n)
	}
}

// TestAttackRedirect: a listed server cannot lead a chat's client to what its profile does
// not open.
func TestAttackRedirect(t *testing.T) {
	out := newInternet(t)
	to := []string{"http://169.254.169.254:8080/", "http://meta.example.test:8080/",
		"http://203.0.113.1:8080/", "http://other.example.test:8080/"}
	for _, l := range out.listen(t, "8090") {
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, to[r.URL.Path[1]-'0'], http.StatusFound)
			}))
		}()
	}
	m := open(t, named(t, "api.example.test:8090", "meta.example.test:8080"))
	a := inmateOf(t, m, "redirect", "named")
	for i, where := range to {
		n := string(rune('0' + i))
		got := a.try(t, "get", "http://api.example.test:8090/"+n, "X", "y")
		expect.True(t, !strings.HasPrefix(got, "ok") && got != "", "%s: %q", where, got)
	}
	outcomes(t, "control", asHost(t, "get", "http://"+outsideAddr+":8090/0", "X", "y"), "ok")
}
