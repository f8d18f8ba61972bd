package printer

import (
	"fmt"
	"io"
	"time"
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
	stop, stopped := make(chan struct{}), make(chan struct{})
	go spin(w, what, stop, stopped)
	return func() { close(stop); <-stopped }
}

func spin(w io.Writer, what string, stop, stopped chan struct{}) {
	defer close(stopped)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i, begin := 0, time.Now(); ; i++ {
		select {
		case <-stop:
			fmt.Fprint(w, "\r\x1b[K")
			return
		case <-tick.C:
			fmt.Fprintf(w, "\r%c %s %s", `|/-\`[i%4], what, time.Since(begin).Truncate(time.Second))
		}
	}
}
