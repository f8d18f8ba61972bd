package shims

import (
	"bufio"
	"encoding/json"
	"fmt"

	"github.com/chatd/chatd/chat"
)

// FileTool is what chatd-shim filetool may reach. It is the first line of the tool's standard
// input, before the request that package files describes; the answer goes to standard output.
// The tool asks the other end for the verdict of the file rules.
type FileTool struct {
	// Workspace is the home, Roots are the chat's other directories.
	Workspace string   `json:"workspace"`
	Roots     []string `json:"roots,omitempty"`
	// Unrestricted, ReadOutside, AllowRead and AllowWrite are as in files.Options.
	Unrestricted bool     `json:"unrestricted,omitempty"`
	ReadOutside  bool     `json:"read_outside,omitempty"`
	AllowRead    []string `json:"allow_read,omitempty"`
	AllowWrite   []string `json:"allow_write,omitempty"`
	// MaxBytes bounds a file that is written, and what one stream reads.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// FileToolArgv starts the tool inside a session.
func FileToolArgv() []string { return []string{InsideShim, "filetool"} }

// maxFileTool bounds the line, in bytes.
const maxFileTool = 64 << 10

// Line is the first line of the tool's standard input.
func (t FileTool) Line() ([]byte, error) {
	line, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("cannot write what the file tool may do: %w", err)
	}
	if len(line) >= maxFileTool {
		return nil, fmt.Errorf("cannot write what the file tool may do: %d bytes, want less than %d: %w", len(line), maxFileTool, chat.ErrInvalid)
	}
	return append(line, '\n'), nil
}

// readFileTool reads the line. r has room for it.
func readFileTool(r *bufio.Reader) (FileTool, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return FileTool{}, fmt.Errorf("cannot read what the file tool may do: %w: %w", err, chat.ErrInvalid)
	}
	var t FileTool
	if err := strict(line, &t); err != nil {
		return FileTool{}, fmt.Errorf("cannot read what the file tool may do: %w: %w", err, chat.ErrInvalid)
	}
	return t, nil
}
