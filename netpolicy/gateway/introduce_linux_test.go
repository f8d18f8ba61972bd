package gateway

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// waits reports whether a goroutine waits for a mutex in a function.
func waits(function string) bool {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		locks := bytes.Contains(one, []byte("[sync.Mutex.Lock"))
		if locks && bytes.Contains(one, []byte(function)) {
			return true
		}
	}
	return false
}

// TestSlowIntroduction: a chatd-egress that is slow to hear of chats holds up the others, which
// sleep meanwhile and change, for one of them alone.
func TestSlowIntroduction(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	g := followed(t, dir)
	var ids []chat.ID
	for i := range 8 {
		ids = append(ids, chat.ID(fmt.Sprintf("%016x", i)))
		must.Do(t, g.Open(t.Context(), Chat{ids[i], "", 70001 + uint32(i), nil}, session(t)))
	}
	var mu sync.Mutex
	var opened []chat.ID
	release := make(chan bool)
	end := sync.OnceFunc(func() { close(release) })
	newCarrierWith(t, dir, func(id chat.ID) {
		mu.Lock()
		opened = append(opened, id)
		mu.Unlock()
		<-release
	})
	t.Cleanup(end) // before the carrier ends
	has := func() []chat.ID { mu.Lock(); defer mu.Unlock(); return slices.Clone(opened) }
	until(t, func() bool { return len(has()) == 1 })
	closed := make(chan error, 1)
	last := ids[7]
	go func() { closed <- g.Close(t.Context(), last) }()
	until(t, func() bool { return waits("gateway.(*Gateway).Close(") })
	for range 7 {
		time.Sleep(2 * time.Millisecond) // from when on a mutex is handed to who waits
		select {
		case release <- true:
		case err := <-closed:
			must.Do(t, err)
			closed <- nil
		}
	}
	must.Do(t, <-closed)
	end()
	until(t, func() bool { return len(has()) >= 7 })
	if got := has(); slices.Contains(got, last) || !slices.Equal(got, ids[:7]) {
		t.Errorf("it was told of %v, want %v", got, ids[:7])
	}
}
