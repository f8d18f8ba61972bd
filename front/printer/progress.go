package printer

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/chatd/chatd/chat"
)

// Progress shows on a terminal that something is under way, until the returned
// func is called. Plain means a line without movement.
func Progress(w io.Writer, what string, plain bool) (done func()) {
	if !IsTerminal(w) {
		return func() {}
	}
	if plain {
		fmt.Fprintf(w, "%s …\n", what)
		return func() {}
	}
	i, begin := 0, time.Now()
	return meanwhile(100*time.Millisecond, func() {
		fmt.Fprintf(w, "\r%c %s %s", `|/-\`[i%4], what, time.Since(begin).Truncate(time.Second))
		i++
	}, func() { fmt.Fprint(w, "\r\x1b[K") })
}

// meanwhile calls act at intervals until the returned function is called, and then end.
func meanwhile(interval time.Duration, act, end func()) (done func()) {
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		chat.Every(ctx, interval, act)
		end()
	}()
	return func() { stop(); <-stopped }
}
