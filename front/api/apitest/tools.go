package apitest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// maxMemory bounds a file of a Memory, in bytes.
const maxMemory = 64 << 20

// FileTool serves a tool on the chat's files, which speaks the protocol of package files over two
// pipes.
func (m *Memory) FileTool(ctx context.Context, id chat.ID, u filewire.Use, talk filewire.Talk) error {
	args, err := u.Read()
	if err != nil {
		return err
	}
	m.mu.Lock()
	c, err := m.reach(ctx, id)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	c.UsedAt = m.Now().UTC()
	t := &tool{m: m, ctx: ctx, chat: *c, on: m.onFile}
	m.mu.Unlock()
	req, err := filewire.NewRequest(u.Tool, args)
	if err != nil {
		return err
	}
	s := filewire.LiveTool{Tool: u.Tool, Max: 1 << 40}
	served, err := serve(&s, t)
	if err != nil {
		return err
	}
	if err = filewire.Send(s.In, req); err == nil {
		_, err = talk(ctx, s)
	}
	_ = errors.Join(s.In.Close(), s.Out.Close()) // talk closes them too
	<-served
	return err
}

// ShareFile serves a tool of each chat.
func (m *Memory) ShareFile(ctx context.Context, id chat.ID, s chat.Share, talk filewire.Talk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	read, err := filewire.NewUse(filewire.ReadFileTool, filewire.ReadFile{Path: s.Path, Stream: true})
	if err != nil {
		return err
	}
	write, err := filewire.NewUse(filewire.WriteFileTool, filewire.WriteFile{Path: s.Target(), Stream: true})
	if err != nil {
		return err
	}
	if _, err := m.Get(ctx, s.To); err != nil {
		return err
	}
	var both sync.WaitGroup
	var readErr error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	both.Go(func() {
		if readErr = m.FileTool(ctx, id, read, talk); readErr != nil {
			cancel()
		}
	})
	writeErr := m.FileTool(ctx, s.To, write, talk)
	both.Wait()
	if readErr == nil || errors.Is(writeErr, chat.ErrDenied) {
		return writeErr // the reader ended because of it
	}
	return readErr
}

// OnFile makes the next calls of the file tools do f in their place, until it is nil. Content comes
// from body, and goes to what begin returns.
func (m *Memory) OnFile(
	f func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error),
) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onFile = f
}

// Put keeps a file of the chat's home, whatever Deny says.
func (m *Memory) Put(id chat.ID, name, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(id, m.chats[id].Home+"/"+name, []byte(text))
}

// put reports whether the file is new; the lock is held.
func (m *Memory) put(id chat.ID, name string, b []byte) (created bool) {
	if m.files[id] == nil {
		m.files[id] = map[string][]byte{}
	}
	_, there := m.files[id][name]
	m.files[id][name] = b
	return !there
}

// tool is the file tools of one call, on files in memory.
type tool struct {
	m    *Memory
	ctx  context.Context
	chat chat.Chat
	on   func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error)
}

// named is the file of that name, unless Deny has something against it.
func (t *tool) named(op filewire.Op, name string) (string, error) {
	if !path.IsAbs(name) {
		name = t.chat.Home + "/" + name
	}
	name = path.Clean(name)
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.m.Deny == nil {
		return name, nil
	}
	if d := t.m.Deny(op, name); d != nil {
		return "", d
	}
	return name, nil
}

func (t *tool) load(name string) ([]byte, bool) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	b, ok := t.m.files[t.chat.ID][name]
	return b, ok
}

// store keeps the content, and reports whether the file is new.
func (t *tool) store(name string, b []byte) (created bool) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return t.m.put(t.chat.ID, name, b)
}

// ReadFile reads by bytes, not by lines.
func (t *tool) ReadFile(a filewire.ReadFile, begin filewire.Begin) (filewire.Answer, error) {
	name, err := t.named(filewire.Read, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	if t.on != nil {
		return t.on(t.ctx, filewire.ReadFileTool, begin, nil)
	}
	b, ok := t.load(name)
	if !ok {
		return filewire.Answer{}, fmt.Errorf("failed to read file: file not found%w",
			silentError{chat.ErrNotFound})
	}
	out := filewire.Answer{Path: name, Size: int64(len(b)), Mode: 0o600, Offset: a.Offset}
	b = b[min(a.Offset, out.Size):]
	if n := a.Length; n > 0 || !a.Stream {
		if n == 0 {
			n = filewire.MaxPage
		}
		b = b[:min(n, int64(len(b)))]
	}
	if _, err := begin(out).Write(b); err != nil {
		return out, err
	}
	out.Bytes = int64(len(b))
	if end := out.Offset + out.Bytes; end < out.Size {
		out.Truncated, out.NextOffset = true, end
	}
	if a.Hash {
		out.SHA256 = sum(b)
	}
	return out, nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// silentError is an error by its kind, without a word, as package files has.
type silentError struct{ err error }

func (silentError) Error() string   { return "" }
func (s silentError) Unwrap() error { return s.err }

func (t *tool) WriteFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	return t.write(filewire.WriteFileTool, a, body, "File written: ")
}

func (t *tool) AppendFile(a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	return t.write(filewire.AppendFileTool, a, body, "Appended to ")
}

func (t *tool) write(
	which filewire.Tool, a filewire.WriteFile, body io.Reader, done string,
) (filewire.Answer, error) {
	name, err := t.named(filewire.Write, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	if t.on != nil {
		return t.on(t.ctx, which, nil, body)
	}
	b, err := io.ReadAll(io.LimitReader(body, maxMemory))
	if err != nil {
		return filewire.Answer{}, err
	}
	out := filewire.Answer{Message: done + a.Path, Path: name, Mode: 0o600, Bytes: int64(len(b))}
	if a.Hash {
		out.SHA256 = sum(b)
	}
	if which == filewire.AppendFileTool {
		old, _ := t.load(name)
		b = slices.Concat(old, b)
	}
	out.Created, out.Size = t.store(name, b), int64(len(b))
	return out, nil
}

// EditFile replaces the text, which must be there once.
func (t *tool) EditFile(a filewire.EditFile) (filewire.Answer, error) {
	name, err := t.named(filewire.Edit, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	b, ok := t.load(name)
	switch n := bytes.Count(b, []byte(a.OldText)); {
	case !ok:
		return filewire.Answer{}, fmt.Errorf("failed to edit file: file not found%w",
			silentError{chat.ErrNotFound})
	case n == 0:
		return filewire.Answer{}, fmt.Errorf("old_text not found in file. Make sure it matches exactly%w",
			silentError{chat.ErrInvalid})
	case n > 1:
		return filewire.Answer{}, fmt.Errorf("old_text appears %d times. Please provide more context to make it unique%w", n, silentError{chat.ErrInvalid})
	}
	b = bytes.Replace(b, []byte(a.OldText), []byte(a.NewText), 1)
	t.store(name, b)
	return filewire.Answer{Message: "File edited: " + a.Path, Path: name, Size: int64(len(b)),
		Diff: "-" + a.OldText + "\n+" + a.NewText + "\n"}, nil
}

// ListDir lists what has content below the directory.
func (t *tool) ListDir(a filewire.ListDir, begin filewire.Begin) (filewire.Answer, error) {
	dir, err := t.named(filewire.Read, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	t.m.mu.Lock()
	lines := map[string]bool{}
	for name := range t.m.files[t.chat.ID] {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
			entry, _, deeper := strings.Cut(rest, "/")
			lines[map[bool]string{true: "DIR:  ", false: "FILE: "}[deeper]+entry+"\n"] = true
		}
	}
	t.m.mu.Unlock()
	list := strings.Join(slices.Sorted(maps.Keys(lines)), "")
	out := filewire.Answer{Path: dir, Bytes: int64(len(list)), Entries: len(lines)}
	_, err = io.WriteString(begin(out), list)
	return out, err
}
