package runs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// Share is [verbs.Chats]. It copies from one tool to the other.
func (t *Tools) Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error) {
	c := newCopying()
	err := t.below.ShareFile(ctx, id, s, c.talk)
	if err != nil {
		return chat.Shared{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out, nil
}

// copying is one copy: two tools with a pipe between them. It counts and hashes the content itself,
// and does not rely on either chat's report.
type copying struct {
	r     *io.PipeReader
	w     *io.PipeWriter
	sum   hash.Hash
	bytes int64

	mu  sync.Mutex
	out chat.Shared
}

func newCopying() *copying {
	c := &copying{sum: sha256.New()}
	c.r, c.w = io.Pipe()
	return c
}

// Write counts and hashes content on its way to the pipe.
func (c *copying) Write(p []byte) (int, error) {
	c.sum.Write(p)
	c.bytes += int64(len(p))
	return c.w.Write(p)
}

// errOtherSide ends one side because the other did.
var errOtherSide = errors.New("the other side of the copy ended")

// talk speaks with one of the two tools. Neither waits for the other when ctx has ended.
func (c *copying) talk(ctx context.Context, s filewire.LiveTool) (filewire.Answer, error) {
	defer context.AfterFunc(ctx, func() { c.end(context.Cause(ctx)) })()
	if s.Tool == filewire.WriteFileTool {
		a, err := speak(ctx, s, filewire.Exchange{Body: c.r})
		_ = c.r.CloseWithError(errOtherSide) // never fails
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out.ToPath = a.Path
		return a, err
	}
	begin := bounded(filewire.ReadFile{}, s.Max, func(filewire.Answer) io.Writer { return c })
	a, err := speak(ctx, s, filewire.Exchange{Begin: begin, Limit: s.Max})
	_ = c.w.CloseWithError(err) // nil is the end of the file; never fails
	if errors.Is(err, errOtherSide) {
		err = &filewire.BodyError{Err: err} // tells chatd-root whose error it is
	}
	if err != nil {
		return a, err
	}
	a.Bytes, a.SHA256 = c.bytes, hex.EncodeToString(c.sum.Sum(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.Path, c.out.Bytes, c.out.SHA256 = a.Path, a.Bytes, a.SHA256
	return a, nil
}

func (c *copying) end(why error) {
	_, _ = c.r.CloseWithError(why), c.w.CloseWithError(why) // never fail
}
