package plan

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
)

// FileTool is what chatd-shim filetool may reach. It is the first line of the tool's standard
// input, before the request that package files describes; the answer goes to standard output.
type FileTool struct {
	// Confine is the view that it makes; nil, in tests, is none.
	Confine *ToolView `json:"confine,omitempty"`
	// Rules are the file rules of the chat; nil is none.
	Rules *filewire.Rules `json:"rules,omitempty"`
	// Workspace is the home, Roots are the chat's other directories.
	Workspace string   `json:"workspace"`
	Roots     []string `json:"roots,omitempty"`
	// ReadOutside, AllowRead and AllowWrite are as in filewire.Options.
	ReadOutside bool     `json:"read_outside,omitempty"`
	AllowRead   []string `json:"allow_read,omitempty"`
	AllowWrite  []string `json:"allow_write,omitempty"`
	// MaxBytes bounds a file that is written, and what one stream reads.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// ToolView is what a file tool sees of the host, and as whom: these trees and a /proc of its own.
type ToolView struct {
	UID    uint32             `json:"uid"`
	Limits chat.ProcessLimits `json:"limits"`
	// Trees are bound in their order, outer ones first.
	Trees []chat.Exposed `json:"trees"`
}

// MaxFileTool bounds the line, in bytes: the file of rules is most of it.
const MaxFileTool = 4 << 20

// Line is the first line of the tool's standard input.
func (t FileTool) Line() ([]byte, error) {
	line, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("cannot write what the file tool may do: %w", err)
	}
	if len(line) >= MaxFileTool {
		return nil, chat.Invalid("cannot write what the file tool may do: %d bytes, "+
			"want less than %d", len(line), MaxFileTool)
	}
	return append(line, '\n'), nil
}

// ReadFileTool reads the line.
func ReadFileTool(r *bufio.Reader) (t FileTool, err error) {
	var line []byte
	for more := true; more && err == nil; {
		var part []byte
		part, err = r.ReadSlice('\n')
		line = append(line, part...)
		if more = err == bufio.ErrBufferFull; more && len(line) < MaxFileTool {
			err = nil
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = chat.Strict(line, &t)
	}
	if err != nil {
		return t, chat.Invalid("cannot read what the file tool may do: %w", err)
	}
	return t, nil
}
