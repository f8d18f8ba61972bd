package filewire

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Answer is the result of a tool. Content, of a file or a list, goes to a separate writer.
type Answer struct {
	// Message is the tool's message, such as "File written: a.txt".
	Message string `json:"message,omitempty"`
	// Path is the physical name of the opened file.
	Path string `json:"path,omitempty"`
	// Size, Mode and Modified are the file's, as it was opened or as it was left.
	Size     int64      `json:"size"`
	Mode     uint32     `json:"mode,omitempty"`
	Modified *time.Time `json:"modified,omitempty"`
	// Created means that the file did not exist before.
	Created bool `json:"created,omitempty"`
	// Offset is where the content begins and Bytes how much there is.
	Offset int64 `json:"offset,omitempty"`
	Bytes  int64 `json:"bytes"`
	// Truncated means that there is more, from NextOffset or NextLine on, or after NextEntry.
	Truncated  bool   `json:"truncated,omitempty"`
	NextOffset int64  `json:"next_offset,omitempty"`
	NextLine   int64  `json:"next_line,omitempty"`
	NextEntry  string `json:"next_entry,omitempty"`
	// Lines and Entries count the content, if the request pages by them.
	Lines   int64 `json:"lines,omitempty"`
	Entries int   `json:"entries,omitempty"`
	// Diff is edit_file's change as a unified diff. DiffOmitted is why there is none.
	Diff        string `json:"diff,omitempty"`
	DiffOmitted string `json:"diff_omitted,omitempty"`
	SHA256      string `json:"sha256,omitempty"`
	// Content means, on the wire, that chunks and a second Answer follow.
	Content bool `json:"content,omitempty"`
	// Failure is the error; nil on success.
	Failure *Failure `json:"failure,omitempty"`
}

// Check bounds the fields of an answer, and returns its failure.
func (a *Answer) Check() error {
	if len(a.Path) > 2*MaxPath || len(a.Message) > MaxPath+MaxMessage || len(a.NextEntry) > MaxPath ||
		len(a.SHA256) > 64 ||
		len(a.DiffOmitted) > MaxMessage || a.Size < 0 || a.Bytes < 0 || a.Offset < 0 {
		return errors.New("cannot use the answer: a field of it is out of all bounds")
	}
	f := a.Failure
	if f == nil {
		return nil
	}
	f.Message = strings.ToValidUTF8(cut(f.Message, MaxMessage), "")
	if d := f.Denial; d != nil {
		d.Path, d.Rule, d.Place = cut(d.Path, MaxPath), cut(d.Rule, MaxPath), cut(d.Place, MaxPath)
		d.Message, d.Layer = strings.ToValidUTF8(cut(d.Message, MaxMessage), ""), cut(d.Layer, MaxMessage)
		if f.Kind != "denied" {
			return fmt.Errorf("cannot use the answer: a denial of kind %s", chat.Quote(f.Kind))
		}
	}
	return f
}

// Begin receives a tool's first answer, known before the content, and returns the writer of the
// content.
type Begin func(Answer) io.Writer

// Denial is the error of a denied operation, with the fields for the audit log. It is
// [chat.ErrDenied].
type Denial struct {
	Tool Tool `json:"tool,omitempty"`
	Op   Op   `json:"op"`
	// Path is the name that was checked: the folded one or the physical one.
	Path string `json:"path"`
	// Rule is the pattern that denies, Place its file and line, Layer the wall.
	Rule  string `json:"rule"`
	Place string `json:"place,omitempty"`
	Layer string `json:"layer,omitempty"`
	// Message is the caller's text; if empty, Error states rule and place.
	Message string `json:"message,omitempty"`
	// Errno is the kernel's error, where Place names a rule that the kernel enforces.
	Errno string `json:"-"`
}

// The rules of this package itself, and the name for the kernel's refusals.
const (
	RuleWorkspace = "restrict_to_workspace"
	RuleHardLink  = "hard link to another owner's file"
	RuleKernel    = "kernel"
)

// Error is the message.
func (d *Denial) Error() string {
	if d.Message != "" {
		return d.Message
	}
	text := fmt.Sprintf("access denied: %s of %s by rule %s", d.Op, chat.Quote(d.Path), chat.Quote(d.Rule))
	if d.Place != "" {
		text += " (" + d.Place + ")"
	}
	return text
}

// Unwrap is [chat.ErrDenied].
func (d *Denial) Unwrap() error { return chat.ErrDenied }

// Check returns the denial of op on path, an absolute name, or nil. The tools check the folded name
// first, then the physical one.
type Check func(op Op, path string) *Denial

// Failure is an error on the wire.
type Failure struct {
	// Kind is package api's word for its kind: invalid, denied, not_found, busy, internal, …
	Kind    string  `json:"kind"`
	Message string  `json:"message"`
	Denial  *Denial `json:"denial,omitempty"`
}

// kinds are package api's words for the errors of package chat.
var kinds = []struct {
	word string
	err  error
}{
	{"invalid", chat.ErrInvalid},
	{"denied", chat.ErrDenied},
	{"not_found", chat.ErrNotFound},
	{"exists", chat.ErrExists},
	{"wrong_phase", chat.ErrWrongPhase},
	{"unsupported", chat.ErrUnsupported},
	{"busy", chat.ErrBusy},
}

// Error is the message.
func (f *Failure) Error() string { return f.Message }

// Unwrap is the denial, or the error of package chat that Kind names.
func (f *Failure) Unwrap() error {
	if f.Denial != nil {
		return f.Denial
	}
	for _, k := range kinds {
		if k.word == f.Kind {
			return k.err
		}
	}
	return nil
}

// MaxMessage bounds a failure's message, in bytes.
const MaxMessage = 4 << 10

// FailureOf is err for the wire; nil for nil.
func FailureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Kind: "internal", Message: cut(err.Error(), MaxMessage)}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			f.Kind = k.word
			break
		}
	}
	errors.As(err, &f.Denial)
	return f
}

func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
