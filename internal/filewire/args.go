package filewire

import (
	"cmp"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
)

// Tool is one of the five, or resolve.
type Tool string

// The tools, by the names they have in a request and in the API.
const (
	ReadFileTool   Tool = "read_file"
	WriteFileTool  Tool = "write_file"
	EditFileTool   Tool = "edit_file"
	AppendFileTool Tool = "append_file"
	ListDirTool    Tool = "list_dir"
	// ResolveTool is for explain only: it reports the targets of a request's Links and does nothing
	// else.
	ResolveTool Tool = "resolve"
)

// Op is an operation of the rules. list_dir is a read of the directory, append_file a write.
type Op string

// The operations that the tools ask a [Check] about.
const (
	Read  Op = "read"
	Write Op = "write"
	Edit  Op = "edit"
)

// Bounds of a call.
const (
	MaxPath        = 4096      // bytes of a path, as the kernel's PATH_MAX
	MaxText        = 1 << 20   // bytes of content, or of old_text and new_text together, in a request
	MaxPage        = 1 << 20   // bytes that read_file returns when it does not stream
	MaxPiece       = 1 << 20   // bytes that append_file writes in one write(2)
	MaxOffset      = 1 << 60   // the highest offset of a request
	MaxEntries     = 10_000    // entries in one answer of list_dir
	DefaultEntries = 1000      // without a limit in the request
	MaxDiff        = 256 << 10 // bytes of a diff; a longer one is left out
)

// ReadFile are the arguments of read_file. Offset and Length page by bytes, Line
// and Lines by lines, not both.
type ReadFile struct {
	Path   string `json:"path" doc:"The file, absolute or below the workspace."`
	Offset int64  `json:"offset,omitempty" minimum:"0" doc:"The first byte."`
	// Length 0 means one page: at most MaxPage, without half a character.
	Length int64 `json:"length,omitempty" minimum:"0" doc:"So many bytes; a page if absent."`
	// Line counts from 1.
	Line  int64 `json:"line,omitempty" minimum:"0" doc:"The first line, counted from 1."`
	Lines int64 `json:"lines,omitempty" minimum:"0" doc:"So many lines; what a page holds if absent."`
	// Stream lifts the bound of a page; the bound of a file stays.
	Stream bool `json:"stream,omitempty" doc:"Everything, not a page."`
	Hash   bool `json:"hash,omitempty" doc:"Answer the SHA-256 of what was read."`
}

// WriteFile are the arguments of write_file and of append_file.
type WriteFile struct {
	Path string `json:"path" doc:"The file, absolute or below the workspace; made if it is not there."`
	// Content is nil when the content follows as a stream.
	Content *string `json:"content,omitempty" doc:"What to write."`
	Stream  bool    `json:"stream,omitempty" doc:"The content follows."`
	Hash    bool    `json:"hash,omitempty" doc:"Answer the SHA-256 of what was written."`
}

// EditFile are the arguments of edit_file.
type EditFile struct {
	Path    string `json:"path" doc:"The file, absolute or below the workspace."`
	OldText string `json:"old_text" doc:"What to replace; it must be there exactly once."`
	NewText string `json:"new_text" doc:"What to put in its place."`
}

// ListDir are the arguments of list_dir.
type ListDir struct {
	Path string `json:"path,omitempty" doc:"The directory; the workspace if empty."`
	// After continues a list: it is the last entry of the previous page.
	After string `json:"after,omitempty" doc:"Only entries after this one."`
	Limit int    `json:"limit,omitempty" minimum:"0" maximum:"10000" doc:"At most so many; 1000 if absent."`
}

// Resolve are the arguments of resolve: none.
type Resolve struct{}

// Validate is nil.
func (Resolve) Validate() error { return nil }

// Validate reports an invalid argument, as [chat.ErrInvalid].
func (a ReadFile) Validate() error {
	switch {
	case a.Offset < 0 || a.Length < 0 || a.Line < 0 || a.Lines < 0:
		return Invalid("cannot read: offset, length, line and lines may not be negative")
	case a.Offset > MaxOffset:
		return Invalid("cannot read: offset %d, want at most %d", a.Offset, int64(MaxOffset))
	case (a.Offset > 0 || a.Length > 0) && (a.Line > 0 || a.Lines > 0):
		return Invalid("cannot read: want offset and length, or line and lines, not both")
	case a.Length > MaxPage && !a.Stream:
		return Invalid("cannot read: length %d, want at most %d or a stream", a.Length, MaxPage)
	}
	return checkPath(a.Path)
}

// Validate reports an invalid argument, as [chat.ErrInvalid].
func (a WriteFile) Validate() error {
	switch {
	case a.Content == nil && !a.Stream:
		return Invalid("cannot write %s: content is missing: want the text to write; \"\" makes an empty file", chat.Quote(a.Path))
	case a.Content != nil && a.Stream:
		return Invalid("cannot write %s: it has content, and a stream follows: want one of them",
			chat.Quote(a.Path))
	case a.Stream:
		return checkPath(a.Path)
	}
	return cmp.Or(checkPath(a.Path), checkTexts("content", *a.Content))
}

// Validate reports an invalid argument, as [chat.ErrInvalid].
func (a EditFile) Validate() error {
	if a.OldText == "" {
		return Invalid("cannot edit: old_text is empty")
	}
	return cmp.Or(checkPath(a.Path), checkTexts("old_text and new_text", a.OldText, a.NewText))
}

// Validate reports an invalid argument, as [chat.ErrInvalid].
func (a ListDir) Validate() error {
	if a.Limit < 0 || a.Limit > MaxEntries {
		return Invalid("cannot list: limit %d, want 0 to %d", a.Limit, MaxEntries)
	}
	if len(a.After) > MaxPath || !utf8.ValidString(a.After) {
		return Invalid("cannot list: after is longer than %d bytes or not UTF-8", MaxPath)
	}
	if a.Path == "" {
		return nil
	}
	return checkPath(a.Path)
}

func checkPath(p string) error {
	switch {
	case p == "":
		return Invalid("cannot use path: it is empty")
	case len(p) > MaxPath:
		return Invalid("cannot use path: %d bytes, want at most %d", len(p), MaxPath)
	case strings.IndexByte(p, 0) >= 0:
		return Invalid("cannot use path %s: it holds a NUL", chat.Quote(p))
	case !utf8.ValidString(p):
		return Invalid("cannot use path %s: not valid UTF-8", chat.Quote(p))
	}
	return nil
}

// checkTexts refuses texts that JSON would alter.
func checkTexts(field string, texts ...string) error {
	size := 0
	for _, s := range texts {
		size += len(s)
		if !utf8.ValidString(s) {
			return Invalid("cannot use %s: not valid UTF-8; send such content as a stream", field)
		}
	}
	if size > MaxText {
		return Invalid("cannot use %s: %d bytes, want at most %d", field, size, MaxText)
	}
	return nil
}

// Invalid is an error of kind [chat.ErrInvalid] about a caller's arguments or content.
func Invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, chat.ErrInvalid)...)
}
