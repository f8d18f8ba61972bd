package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"testing"

	"github.com/chatd/chatd/test/must"
)

// answersAtOnce is how many answers of a model chats of one owner have at a time, and how many chats.
const answersAtOnce, askingChats = 500, 200

// inUse is the memory of the process, without what could be given back.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what had finalizers
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// holdAnswers begins this many answers at once, and returns what each takes of memory then.
func holdAnswers(tb testing.TB, ask func(i int) (*http.Response, error)) (bytesEach int64) {
	before := inUse()
	answers := make(chan *http.Response, answersAtOnce)
	beginning := make(chan struct{}, 16) // a slow machine has its time
	var all sync.WaitGroup
	for i := range answersAtOnce {
		beginning <- struct{}{}
		all.Go(func() {
			defer func() { <-beginning }()
			a, err := ask(i)
			if err != nil {
				tb.Error(err)
				return
			}
			line, err := bufio.NewReader(a.Body).ReadString('\n')
			if a.StatusCode != http.StatusOK || line != "data: hello\n" {
				tb.Errorf("answer %d: %s %q, %v", i, a.Status, line, err)
			}
			answers <- a
		})
	}
	all.Wait()
	bytesEach = (inUse() - before) / answersAtOnce
	for range len(answers) {
		(<-answers).Body.Close()
	}
	return bytesEach
}

// TestManyAnswers: 500 answers of a model that says a word now and then, to 200 chats of one owner,
// each over a connection of its own, are all there at once, by what they are counted. Their memory
// is less: -v has it, with that of the client and the server of the test.
func TestManyAnswers(t *testing.T) {
	w, finish := slowWorld(t)
	defer close(finish)
	t.Logf("%d KiB an answer", w.holdMany(false)>>10)
	w.s.web.costs.mu.Lock()
	defer w.s.web.costs.mu.Unlock()
	if used := int64(webMemory) - w.s.web.costs.left; used > webMemory*3/4 {
		t.Errorf("they count %d MiB", used>>20)
	}
}

// TestPipelinedIsCharged: requests that come at once cost what others do, one after the other,
// though the second and third are read with the first.
func TestPipelinedIsCharged(t *testing.T) {
	asked, answer := make(chan string), make(chan struct{})
	w := newSecretWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-answer
	})
	c := tls.Client(w.dialAPI(apiHost), &tls.Config{RootCAs: pool(t, authorities().own), ServerName: apiHost})
	defer c.Close()
	var all bytes.Buffer
	for _, path := range []string{"/1", "/2", "/3"} {
		fmt.Fprintf(&all, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, net.JoinHostPort(apiHost, portOf(w.addr)))
	}
	must.Get(c.Write(all.Bytes()))(t)
	for range 3 {
		path := <-asked
		if held := w.held(); held != activeCost {
			t.Errorf("%d while %s is answered", held, path)
		}
		answer <- struct{}{}
	}
}

// TestUnfinishedHeaderIsCharged: a request costs what others do from its first byte on, because
// net/http holds its header before it says that the connection is active.
func TestUnfinishedHeaderIsCharged(t *testing.T) {
	w := newSecretWorld(t, func(http.ResponseWriter, *http.Request) {})
	c := tls.Client(w.dialAPI(apiHost), &tls.Config{RootCAs: pool(t, authorities().own), ServerName: apiHost})
	defer c.Close()
	must.Get(c.Write([]byte("GET / HTTP/1.1\r\nX-Unfinished: ")))(t)
	waitUntil(t, func() bool { return w.held() == activeCost })
}

// holdMany begins answers over the chats of an owner, and returns what each takes.
func (w *secretWorld) holdMany(http2 bool) int64 {
	var chats [askingChats]*network
	for i := range chats {
		chats[i] = w.ofOwner(i)
	}
	var requests [answersAtOnce]*http.Request
	var clients [answersAtOnce]*http.Client
	for i := range requests {
		requests[i] = w.request("POST", "/", nil)
		of := *w
		of.n = chats[i%askingChats]
		clients[i] = of.client(http2)
	}
	return holdAnswers(w.t, func(i int) (*http.Response, error) {
		return clients[i].Do(requests[i])
	})
}

// TestIdleMemory: what a connection without a request takes is less than what it counts, with the
// client and the server of the test.
func TestIdleMemory(t *testing.T) {
	bothProtocols(t, func(t *testing.T, http2 bool) {
		w := newSecretWorld(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") })
		before := inUse()
		var all []*http.Client
		for range maxSessions {
			all = append(all, w.client(http2))
			w.do(all[len(all)-1], w.request("GET", "/", nil))
		}
		each := (inUse() - before) / maxSessions
		runtime.KeepAlive(all)
		t.Logf("%d KiB", each>>10)
		if each > idleCost {
			t.Errorf("an idle connection takes %d KiB", each>>10)
		}
	})
}

// TestRestingMemory: so it is over plain HTTP.
func TestRestingMemory(t *testing.T) {
	w := newWorld(t)
	o := newOrigin(t, nil)
	c := w.byName("api.example.org", o.addr)
	n := w.network(one)
	before := inUse()
	var all []*bufio.Reader
	for range maxSessions {
		all = append(all, send(t, c, "GET / HTTP/1.1\r\nHost: "+o.host+"\r\n\r\n"))
		answer(t, all[len(all)-1], 200)
		c = w.dial(n, w.named(n, "api.example.org", o.addr.Port()))
	}
	each := (inUse() - before) / maxSessions
	runtime.KeepAlive(all)
	t.Logf("%d KiB", each>>10)
	if each > restingCost {
		t.Errorf("an idle connection takes %d KiB", each>>10)
	}
}
