package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
	"github.com/chatd/chatd/state"
)

// Share copies one regular file from the chat to another of the same caller: read
// as the one and by its rules, written as the other and by its rules. It is the
// only way across. Of a copy that fails nothing is left.
func (m *Manager) Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error) {
	if err := s.Validate(); err != nil {
		return chat.Shared{}, err
	}
	if s.To == id {
		return chat.Shared{}, fmt.Errorf("cannot share with chat %s: it is the same: %w", id, chat.ErrInvalid)
	}
	from, err := m.reach(ctx, id)
	if err != nil {
		return chat.Shared{}, err
	}
	to, err := m.reach(ctx, s.To)
	if err != nil {
		return chat.Shared{}, err
	}
	sh := newSharing(m, from, to, s)
	if err := errors.Join(m.allowFirst(ctx, from, &sh.read), m.allowFirst(ctx, to, &sh.write)); err != nil {
		return chat.Shared{}, err
	}
	if err := sh.audit(ctx, "intent", nil); err != nil {
		return chat.Shared{}, err
	}
	out, err := sh.copy(ctx)
	m.touch(from)
	m.touch(to)
	auditErr := sh.auditEnd(ctx, out, err)
	return out, errors.Join(sh.told(ctx, err), auditErr)
}

// sharing is one copy: two calls with a pipe between them. What passes is counted
// and hashed here, whatever either chat says of it.
type sharing struct {
	m           *Manager
	from, to    state.Record
	read, write fileCall
	share       chat.Share
	r           *io.PipeReader
	w           *io.PipeWriter
	sum         hash.Hash
	bytes       int64
}

func newSharing(m *Manager, from, to state.Record, s chat.Share) *sharing {
	sh := &sharing{m: m, from: from, to: to, share: s, sum: sha256.New()}
	sh.r, sh.w = io.Pipe()
	sh.read = fileCall{tool: files.ReadFileTool, op: files.Read, path: s.Path, stream: true, args: files.ReadFile{Path: s.Path, Stream: true}}
	sh.write = fileCall{tool: files.WriteFileTool, op: files.Write, path: s.Target(), stream: true, args: files.WriteFile{Path: s.Target(), Stream: true}}
	sh.read.Limit = m.fileMax()
	return sh
}

// Write takes what was read on its way to the pipe.
func (sh *sharing) Write(p []byte) (int, error) {
	sh.sum.Write(p)
	sh.bytes += int64(len(p))
	return sh.w.Write(p)
}

// errOtherSide ends one call because the other did.
var errOtherSide = errors.New("the other side of the copy ended")

// copy does the two calls, that of the chat with the lower id around the other:
// each may hold the lock of its chat, and another copy may go the other way.
func (sh *sharing) copy(ctx context.Context) (chat.Shared, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var read, write files.Answer
	var readErr, writeErr error
	doRead := func() {
		read, readErr = sh.m.callTool(ctx, sh.from, sh.read)
		_ = sh.w.CloseWithError(readErr) // nil is the end of the file; never fails
	}
	doWrite := func() {
		write, writeErr = sh.m.callTool(ctx, sh.to, sh.write)
		_ = sh.r.CloseWithError(errOtherSide) // never fails
	}
	var inner sync.WaitGroup
	begin := func(files.Answer) io.Writer { return sh }
	var body io.Reader = sh.r
	outer := doRead
	if sh.from.ID < sh.to.ID {
		begin = func(files.Answer) io.Writer { inner.Go(doWrite); return sh }
	} else {
		outer, body = doWrite, &startingReader{Reader: sh.r, start: func() { inner.Go(doRead) }}
	}
	sh.read.Begin, sh.write.Body = sh.m.boundedBegin(files.ReadFile{Stream: true}, begin), body
	outer()
	inner.Wait()
	if err := sh.failure(readErr, writeErr); err != nil {
		return chat.Shared{}, err
	}
	return chat.Shared{Path: read.Path, ToPath: write.Path, Bytes: sh.bytes, SHA256: hex.EncodeToString(sh.sum.Sum(nil))}, nil
}

// failure is the side's error that was first, not what it made of the other.
func (sh *sharing) failure(readErr, writeErr error) error {
	if readErr != nil && !errors.Is(readErr, errOtherSide) {
		return fmt.Errorf("cannot read from chat %s: %w", sh.from.ID, readErr)
	}
	if writeErr != nil {
		return fmt.Errorf("cannot write to chat %s: %w", sh.to.ID, writeErr)
	}
	return readErr
}

// startingReader calls start before it is read.
type startingReader struct {
	io.Reader
	start func()
	begun bool
}

func (r *startingReader) Read(p []byte) (int, error) {
	if !r.begun {
		r.begun = true
		r.start()
	}
	return r.Reader.Read(p)
}

// audit writes what happens to either chat, under its own name.
func (sh *sharing) audit(ctx context.Context, outcome string, more map[string]string) error {
	detail := func(other string, id chat.ID) map[string]string {
		d := map[string]string{other: string(id), "path": auditText(sh.share.Path), "to_path": auditText(sh.share.Target())}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	return errors.Join(
		sh.m.audit(ctx, sh.from, "share", outcome, detail("to", sh.to.ID)),
		sh.m.audit(ctx, sh.to, "share", outcome, detail("from", sh.from.ID)))
}

func (sh *sharing) auditEnd(ctx context.Context, out chat.Shared, err error) error {
	if err == nil {
		return sh.audit(ctx, "done", map[string]string{"sha256": out.SHA256, "bytes": strconv.FormatInt(out.Bytes, 10)})
	}
	failed := sh.audit(ctx, "failed", map[string]string{"error": err.Error()})
	var d *files.Denial
	if !errors.As(err, &d) {
		return failed
	}
	return errors.Join(failed, sh.m.auditDenial(ctx, sh.side(d), err))
}

// side is the chat whose rules deny.
func (sh *sharing) side(d *files.Denial) state.Record {
	if d.Op == files.Read {
		return sh.from
	}
	return sh.to
}

func (sh *sharing) told(ctx context.Context, err error) error {
	var d *files.Denial
	if !errors.As(err, &d) {
		return err
	}
	return sh.m.told(ctx, sh.side(d), err)
}
