package client

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// FileAnswer is a file tool's answer on the wire.
type FileAnswer struct {
	Message string `json:"message,omitempty" doc:"What was done, in the tool's words."`
	Path    string `json:"path,omitempty" doc:"The physical name of the file, as the chat says."`
	Size    int64  `json:"size" doc:"The file's size in bytes."`
	Mode    uint32 `json:"mode,omitempty" doc:"Its permission bits as a number; permissions has them in octal."`
	// Permissions is Mode in octal.
	Permissions string     `json:"permissions,omitempty" pattern:"^0[0-7]{3}$" doc:"Its permission bits in octal, as in 0644."`
	Modified    *time.Time `json:"modified,omitempty" doc:"When it was last changed."`
	Created     bool       `json:"created,omitempty" doc:"It was not there before."`
	Offset      int64      `json:"offset,omitempty" doc:"Where the content begins."`
	Bytes       int64      `json:"bytes" doc:"How much content there is, or was."`

	Truncated  bool   `json:"truncated,omitempty" doc:"There is more: go on at next_offset, next_line or after next_entry."`
	NextOffset int64  `json:"next_offset,omitempty"`
	NextLine   int64  `json:"next_line,omitempty"`
	NextEntry  string `json:"next_entry,omitempty"`
	Lines      int64  `json:"lines,omitempty" doc:"How many lines came."`
	Entries    int    `json:"entries,omitempty" doc:"How many entries came."`

	Diff        string `json:"diff,omitempty" doc:"What edit_file did, as a unified diff."`
	DiffOmitted string `json:"diff_omitted,omitempty" doc:"Why there is no diff."`
	SHA256      string `json:"sha256,omitempty" doc:"Of the content, in hex, as the chat says."`

	// Content is what was read. Encoding is base64 when the content is not UTF-8.
	Content  *string `json:"content,omitempty" doc:"What was read."`
	Encoding string  `json:"encoding,omitempty" enum:"base64" doc:"base64 when the content is no UTF-8."`
}

// NewFileAnswer converts a tool's answer and the content that it read; nil means none.
func NewFileAnswer(a filewire.Answer, content []byte) FileAnswer {
	out := FileAnswer{
		Permissions: octal(a.Mode),
		Message:     a.Message, Path: a.Path, Size: a.Size, Mode: a.Mode, Modified: a.Modified,
		Created: a.Created,
		Offset:  a.Offset, Bytes: a.Bytes, Truncated: a.Truncated, NextOffset: a.NextOffset,
		NextLine:  a.NextLine,
		NextEntry: a.NextEntry, Lines: a.Lines, Entries: a.Entries, Diff: a.Diff, DiffOmitted: a.DiffOmitted,
		SHA256: a.SHA256,
	}
	if content == nil {
		return out
	}
	return out.withContent(content)
}

// octal is permission bits as chmod(1) takes them; empty for an answer about no file.
func octal(mode uint32) string {
	if mode == 0 {
		return ""
	}
	return fmt.Sprintf("%04o", mode)
}

func (a FileAnswer) answer() filewire.Answer {
	return filewire.Answer{
		Message: a.Message, Path: a.Path, Size: a.Size, Mode: a.Mode, Modified: a.Modified,
		Created: a.Created,
		Offset:  a.Offset, Bytes: a.Bytes, Truncated: a.Truncated, NextOffset: a.NextOffset,
		NextLine:  a.NextLine,
		NextEntry: a.NextEntry, Lines: a.Lines, Entries: a.Entries, Diff: a.Diff, DiffOmitted: a.DiffOmitted,
		SHA256: a.SHA256,
	}
}

// withContent adds the content to a, in a form that JSON can carry.
func (a FileAnswer) withContent(b []byte) FileAnswer {
	text := string(b)
	if !utf8.Valid(b) {
		text, a.Encoding = base64.StdEncoding.EncodeToString(b), "base64"
	}
	a.Content = &text
	return a
}

// content decodes the content that was read.
func (a FileAnswer) content() ([]byte, error) {
	switch {
	case a.Content == nil:
		return nil, nil
	case a.Encoding == "":
		return []byte(*a.Content), nil
	case a.Encoding != "base64":
		return nil, fmt.Errorf("cannot read the content: its encoding is %s", chat.Quote(a.Encoding))
	}
	b, err := base64.StdEncoding.DecodeString(*a.Content)
	if err != nil {
		return nil, fmt.Errorf("cannot read the content: %w", err)
	}
	return b, nil
}
