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

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// maxMemory bounds a file of a Memory, in bytes.
const maxMemory = 64 << 20

// allow finds the chat, its file and whether Deny has something against it; the
// lock is held.
func (m *Memory) allow(
	ctx context.Context, id chat.ID, tool filewire.Tool, op filewire.Op, name string,
) (string, error) {
	c, err := m.reach(ctx, id)
	if err != nil {
		return "", err
	}
	c.UsedAt = m.Now().UTC()
	if !path.IsAbs(name) {
		name = c.Home + "/" + name
	}
	name = path.Clean(name)
	if m.Deny != nil {
		if d := m.Deny(op, name); d != nil {
			d.Tool = tool
			return "", d
		}
	}
	if m.files[id] == nil {
		m.files[id] = map[string][]byte{}
	}
	return name, nil
}

// OnFile makes the next calls of the file tools do f in their place, until it is nil. Content comes
// from body, and goes to what begin returns.
func (m *Memory) OnFile(f func(ctx context.Context, tool filewire.Tool, begin filewire.Begin, body io.Reader) (filewire.Answer, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onFile = f
}

func (m *Memory) instead() func(context.Context, filewire.Tool, filewire.Begin, io.Reader) (filewire.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.onFile
}

// file is the content and where it is.
func (m *Memory) file(
	ctx context.Context, id chat.ID, tool filewire.Tool, op filewire.Op, name string,
) (string, []byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, err := m.allow(ctx, id, tool, op, name)
	if err != nil {
		return "", nil, false, err
	}
	b, ok := m.files[id][at]
	return at, slices.Clone(b), ok, nil
}

// ReadFile reads by bytes, not by lines.
func (m *Memory) ReadFile(
	ctx context.Context, id chat.ID, a filewire.ReadFile, begin filewire.Begin,
) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	name, b, ok, err := m.file(ctx, id, filewire.ReadFileTool, filewire.Read, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	if f := m.instead(); f != nil {
		return f(ctx, filewire.ReadFileTool, begin, nil)
	}
	if !ok {
		return filewire.Answer{}, fmt.Errorf("failed to read file: file not found%w", silentError{chat.ErrNotFound})
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

// WriteFile keeps the content.
func (m *Memory) WriteFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	out, err := m.write(ctx, id, filewire.WriteFileTool, a, body)
	out.Message = "File written: " + a.Path
	return out, err
}

// AppendFile adds the content.
func (m *Memory) AppendFile(
	ctx context.Context, id chat.ID, a filewire.WriteFile, body io.Reader,
) (filewire.Answer, error) {
	out, err := m.write(ctx, id, filewire.AppendFileTool, a, body)
	out.Message = "Appended to " + a.Path
	return out, err
}

func (m *Memory) write(ctx context.Context, id chat.ID, tool filewire.Tool, a filewire.WriteFile, body io.Reader) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	name, _, _, err := m.file(ctx, id, tool, filewire.Write, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	if a.Content != nil {
		body = strings.NewReader(*a.Content)
	}
	if f := m.instead(); f != nil {
		return f(ctx, tool, nil, body)
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, io.LimitReader(body, maxMemory)); err != nil {
		return filewire.Answer{}, err
	}
	out := filewire.Answer{Path: name, Mode: 0o600, Bytes: int64(b.Len())}
	if a.Hash {
		out.SHA256 = sum(b.Bytes())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old, there := m.files[id][name]
	if tool == filewire.WriteFileTool {
		old = nil
	}
	m.files[id][name] = append(slices.Clone(old), b.Bytes()...)
	out.Created, out.Size = !there, int64(len(m.files[id][name]))
	return out, nil
}

// EditFile replaces the text, which must be there once.
func (m *Memory) EditFile(ctx context.Context, id chat.ID, a filewire.EditFile) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	name, b, ok, err := m.file(ctx, id, filewire.EditFileTool, filewire.Edit, a.Path)
	switch n := bytes.Count(b, []byte(a.OldText)); {
	case err != nil:
		return filewire.Answer{}, err
	case !ok:
		return filewire.Answer{}, fmt.Errorf("failed to edit file: file not found%w", silentError{chat.ErrNotFound})
	case n == 0:
		return filewire.Answer{}, fmt.Errorf("old_text not found in file. Make sure it matches exactly%w", silentError{chat.ErrInvalid})
	case n > 1:
		return filewire.Answer{}, fmt.Errorf("old_text appears %d times. Please provide more context to make it unique%w", n, silentError{chat.ErrInvalid})
	}
	b = bytes.Replace(b, []byte(a.OldText), []byte(a.NewText), 1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[id][name] = b
	return filewire.Answer{Message: "File edited: " + a.Path, Path: name, Size: int64(len(b)), Diff: "-" + a.OldText + "\n+" + a.NewText + "\n"}, nil
}

// ListDir lists what has content below the directory.
func (m *Memory) ListDir(ctx context.Context, id chat.ID, a filewire.ListDir, begin filewire.Begin) (filewire.Answer, error) {
	if err := a.Validate(); err != nil {
		return filewire.Answer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.allow(ctx, id, filewire.ListDirTool, filewire.Read, a.Path)
	if err != nil {
		return filewire.Answer{}, err
	}
	lines := map[string]bool{}
	for name := range m.files[id] {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
			entry, _, deeper := strings.Cut(rest, "/")
			lines[map[bool]string{true: "DIR:  ", false: "FILE: "}[deeper]+entry+"\n"] = true
		}
	}
	list := strings.Join(slices.Sorted(maps.Keys(lines)), "")
	out := filewire.Answer{Path: dir, Bytes: int64(len(list)), Entries: len(lines)}
	_, err = io.WriteString(begin(out), list)
	return out, err
}

// Explain asks Deny.
func (m *Memory) Explain(ctx context.Context, id chat.ID, q chat.Question) (chat.Explained, error) {
	if err := q.Validate(); err != nil {
		return chat.Explained{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.Host != "" {
		_, err := m.reach(ctx, id)
		return m.explainTo(q.Destination()), err
	}
	name, err := m.allow(ctx, id, "", filewire.Op(q.Op), q.Path)
	var d *filewire.Denial
	switch {
	case errors.As(err, &d):
		return chat.Explained{Verdict: "deny", Rule: d.Rule, Place: d.Place, Layer: d.Layer, Name: d.Path, Paths: []string{}}, nil
	case err != nil:
		return chat.Explained{}, err
	case q.Command != "":
		return chat.Explained{Verdict: "allow", Layer: "none", Paths: strings.Fields(q.Command)[1:]}, nil
	}
	return chat.Explained{Verdict: "allow", Layer: "none", Name: name, Paths: []string{}}, nil
}

// explainTo compares a name with Egress.
func (m *Memory) explainTo(to chat.Destination) chat.Explained {
	e := chat.Explained{Verdict: "deny", Layer: "egress", Name: to.String(), Paths: []string{}}
	e.Why = "it is not listed"
	if by, ok := chat.ReachableHost(m.Egress, to.UDP, to.Name(), to.Port); ok {
		e.Verdict, e.Rule, e.Why = "allow", by.String(), "it is listed"
		e.Place = "egress of profile default"
	}
	return e
}

// Share copies the content.
func (m *Memory) Share(ctx context.Context, id chat.ID, s chat.Share) (chat.Shared, error) {
	if err := s.Validate(); err != nil {
		return chat.Shared{}, err
	}
	var b bytes.Buffer
	from, err := m.ReadFile(ctx, id, filewire.ReadFile{Path: s.Path, Stream: true, Hash: true}, func(filewire.Answer) io.Writer { return &b })
	if err != nil {
		return chat.Shared{}, err
	}
	to, err := m.WriteFile(ctx, s.To, filewire.WriteFile{Path: s.Target(), Stream: true}, &b)
	return chat.Shared{Path: from.Path, ToPath: to.Path, Bytes: from.Bytes, SHA256: from.SHA256}, err
}
