package provision

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// runStdio is the three streams of a run. They are pipes, given to the chat's
// uid so that /dev/stdout can be opened by name; a socket made here would keep
// root's uid and pass every owner rule.
type runStdio struct {
	stdin                  *os.File
	outR, outW, errR, errW *os.File
}

func newRunStdio(uid uint32, stdin []byte) (*runStdio, error) {
	in, err := memfile("stdin", stdin)
	if err != nil {
		return nil, err
	}
	r := &runStdio{stdin: in}
	r.outR, r.outW, err = os.Pipe()
	if err == nil {
		r.errR, r.errW, err = os.Pipe()
	}
	for _, f := range []*os.File{r.stdin, r.outW, r.errW} {
		if err == nil {
			err = f.Chown(int(uid), int(uid))
		}
	}
	if err != nil {
		r.close()
		return nil, fmt.Errorf("cannot make the streams of a run: %w", err)
	}
	return r, nil
}

func (r *runStdio) closeChildEnds() {
	for _, f := range []**os.File{&r.stdin, &r.outW, &r.errW} {
		if *f != nil {
			(*f).Close()
			*f = nil
		}
	}
}

func (r *runStdio) close() {
	r.closeChildEnds()
	for _, f := range []*os.File{r.outR, r.errR} {
		if f != nil {
			f.Close()
		}
	}
}

// read takes what the run prints until nobody can print any more.
func (r *runStdio) read(stdout, stderr *capture) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		one := make(chan struct{})
		go func() { defer close(one); stderr.take(r.errR) }()
		stdout.take(r.outR)
		<-one
	}()
	return done
}

// drainTime is how long the streams are read on once nobody of the run lives.
// What the run wrote lies in the pipes by then.
const drainTime = 2 * time.Second

// endReads bounds what is left to read. The write ends may outlive the run: a
// descriptor that was sent over a unix socket (SCM_RIGHTS, unix(7)) lives in
// whoever received it, and in the queue of a tmux server that was stopped.
func (r *runStdio) endReads() error {
	end := time.Now().Add(drainTime)
	if err := errors.Join(r.outR.SetReadDeadline(end), r.errR.SetReadDeadline(end)); err != nil {
		return fmt.Errorf("cannot bound the output of a run: %w", err)
	}
	return nil
}

// capture keeps the first [chat.MaxOutput] bytes and counts on: a command is
// never blocked by its own output, and the daemon never holds more than that.
type capture struct {
	kept  bytes.Buffer
	total int64
}

func (c *capture) take(f *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		c.total += int64(n)
		if room := chat.MaxOutput - c.kept.Len(); room > 0 {
			c.kept.Write(buf[:min(n, room)])
		}
		if err != nil {
			return
		}
	}
}

// text is what was kept, as JSON can carry it: bytes that are no UTF-8 become U+FFFD.
func (c *capture) text() string { return strings.ToValidUTF8(c.kept.String(), "\uFFFD") }

func (c *capture) truncated() bool { return c.total > int64(c.kept.Len()) }
