package main

import (
	"context"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/files"
)

// sender is WriteFile or AppendFile of a client.
type sender func(context.Context, chat.ID, files.WriteFile, io.Reader) (files.Answer, error)

// chatWriter is writeChatText for content that comes in pieces: to a file or a pipe
// it goes as it is, to a terminal escaped.
func chatWriter(w io.Writer) io.WriteCloser {
	if isTerminal(w) {
		return &escaping{w: w}
	}
	return passing{w}
}

// passing changes nothing.
type passing struct{ io.Writer }

// Write passes p on.
func (p passing) Write(b []byte) (int, error) {
	n, err := p.Writer.Write(b)
	if err != nil {
		return n, fmt.Errorf("cannot write the output: %w", err)
	}
	return n, nil
}

// Close has nothing left to write.
func (p passing) Close() error { return nil }

// escaping keeps back the bytes of a character whose end has not come.
type escaping struct {
	w    io.Writer
	left []byte
}

// Write escapes all whole characters of p, and of what was kept back.
func (e *escaping) Write(p []byte) (int, error) {
	text := append(e.left, p...)
	end := chat.WholeRunes(text)
	e.left = append([]byte(nil), text[end:]...)
	return len(p), e.write(text[:end])
}

// Close writes what was kept back: its end will not come.
func (e *escaping) Close() error { return e.write(e.left) }

func (e *escaping) write(text []byte) error {
	if _, err := io.WriteString(e.w, escape(string(text))); err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	return nil
}
