package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/client"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/termsafe"
)

// MaxText bounds the bytes of each stream of exec in an answer, and of a file if the agent does not
// ask for more.
const MaxText = 64 << 10

// said is an answer of texts.
func said(parts ...string) *sdk.CallToolResult {
	r := &sdk.CallToolResult{}
	for _, p := range parts {
		r.Content = append(r.Content, &sdk.TextContent{Text: valid(p)})
	}
	return r
}

// reason is the text of err for an agent. It explains errors in the request and denials, which a
// chat may know; other errors may be about the host.
func reason(err error) string {
	kind, place, ref := client.Kind(err), "", ""
	if p, ok := errors.AsType[*client.Problem](err); ok {
		place, ref = p.Place, p.Ref
	}
	if d, ok := errors.AsType[*filewire.Denial](err); ok {
		place = d.Place
	}
	switch {
	case errors.Is(err, context.Canceled): // by the agent, which does not wait for this
		return "cancelled"
	case errors.Is(err, chat.ErrInvalid), errors.Is(err, chat.ErrNotFound), errors.Is(err, chat.ErrExists),
		errors.Is(err, chat.ErrWrongPhase), errors.Is(err, chat.ErrConflict):
		return kind + ": " + chat.ErrorReason(err)
	case errors.Is(err, chat.ErrDenied):
		return kind + ": " + withoutPlace(chat.ErrorReason(err), place)
	case errors.Is(err, chat.ErrBusy):
		return kind + ": chatd cannot do it now; try again in a few seconds"
	case errors.Is(err, chat.ErrUnsupported):
		return kind + ": this host, or this file system, cannot do it"
	case ref != "":
		return kind + ": something is wrong with chatd, not with the call; tell the operator the reference " + ref
	}
	return kind + ": something is wrong with chatd, not with the call; tell the operator"
}

// withoutPlace removes the file and line of a rule from text.
func withoutPlace(text, place string) string {
	if place == "" {
		return text
	}
	return strings.ReplaceAll(strings.ReplaceAll(text, " ("+place+")", ""), place, "the policy")
}

// runText describes a run's output and how it ended.
func runText(r chat.RunResult) []string {
	var parts []string
	if r.Stdout != "" {
		parts = append(parts, bounded(r.Stdout))
	}
	if r.Stderr != "" {
		parts = append(parts, "stderr:\n"+bounded(r.Stderr))
	}
	end := fmt.Sprintf("exit code %d", r.Exit)
	if r.Signal != "" {
		end = "ended by " + r.Signal
	}
	for _, why := range r.Reasons() {
		end += "; " + why
	}
	if r.TimedOut {
		end += ": give a longer timeout, or less to do"
	}
	end += fmt.Sprintf("; it took %s", time.Duration(r.WallMS)*time.Millisecond)
	if r.Truncated || len(r.Stdout) > MaxText || len(r.Stderr) > MaxText {
		end += fmt.Sprintf("; it printed %d bytes, and %d to stderr, too many to show: write them to a file and read that", r.StdoutBytes, r.StderrBytes)
	}
	return append(append(parts, replaced(r.StdoutReplaced, r.StderrReplaced)...), end)
}

// replaced says how many bytes of the streams are shown as U+FFFD.
func replaced(stdout, stderr int64) (notes []string) {
	if stdout+stderr > 0 {
		const text = "%d bytes of stdout and %d of stderr are no UTF-8 and shown as U+FFFD: " +
			"write them to a file, and read_file has them in base64"
		notes = append(notes, fmt.Sprintf(text, stdout, stderr))
	}
	return notes
}

// typedText describes the output after an input, and why the wait ended.
func typedText(t chat.Typed) []string {
	end := map[string]string{
		chat.UntilOutput: "something was printed", chat.UntilScreen: "the screen matches the pattern",
		chat.UntilMore:   "the shell waits for the rest of the line, as after an open quote; ctrl-c gives it up",
		chat.UntilPrompt: "the shell is at its prompt", chat.UntilQuiet: "nothing was printed for a while",
		chat.UntilMax:   "the wait was over before; go on with terminal_read",
		chat.UntilEnded: "the terminal has ended",
	}[t.Until]
	if t.Exit != nil {
		end += fmt.Sprintf("; exit code %d", *t.Exit)
	}
	return append([]string{bounded(t.Plain)}, append(logNotes(t.Log), end)...)
}

// logText is a piece of a terminal's output as plain text.
func logText(l chat.Log) []string {
	return append([]string{bounded(termsafe.Render(l.Bytes(), chat.TerminalRows, chat.TerminalCols))},
		logNotes(l)...)
}

// logNotes state where a piece ends, and what it lacks.
func logNotes(l chat.Log) []string {
	parts := []string{fmt.Sprintf("the cursor is %d", l.Cursor)}
	if l.Cursor < l.End {
		parts = append(parts, fmt.Sprintf("there is more, up to %d", l.End))
	}
	if l.Lost > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes before this are left out", l.Lost))
	}
	if !l.Recording {
		parts = append(parts, "what the terminal prints is not recorded now")
	}
	return parts
}

// bounded shortens a text that is too long to its head and tail.
func bounded(s string) string {
	if len(s) <= MaxText {
		return s
	}
	const half = MaxText / 2
	return fmt.Sprintf("%s\n[… left out …]\n%s", s[:half], s[len(s)-half:])
}

// wrote makes the answer of a tool that writes.
func wrote(a filewire.Answer) toolAnswer[client.FileAnswer] {
	return toolAnswer[client.FileAnswer]{doneText(a), client.NewFileAnswer(a, nil)}
}

// page makes the answer of a tool that reads. An empty read is an empty text, without content.
func page(a filewire.Answer, content []byte) toolAnswer[client.FileAnswer] {
	if content == nil {
		content = []byte{}
	}
	return toolAnswer[client.FileAnswer]{pageText(a, content), client.NewFileAnswer(a, content)}
}

// doneText describes what a tool that writes did.
func doneText(a filewire.Answer) []string {
	parts := []string{a.Message}
	if a.Diff != "" {
		parts = append(parts, a.Diff)
	}
	if a.DiffOmitted != "" {
		parts = append(parts, a.DiffOmitted)
	}
	return parts
}

// pageText is the content that was read, and where to continue.
func pageText(a filewire.Answer, content []byte) []string {
	parts := []string{string(content)}
	if !utf8.Valid(content) {
		parts = []string{base64.StdEncoding.EncodeToString(content),
			"this is base64: the content is no UTF-8"}
	}
	switch {
	case !a.Truncated:
	case a.NextEntry != "":
		parts = append(parts, "there are more entries: go on with after "+chat.Quote(a.NextEntry))
	case a.NextLine != 0:
		parts = append(parts, fmt.Sprintf("there is more: go on with line %d", a.NextLine))
	default:
		parts = append(parts,
			fmt.Sprintf("there is more, %d bytes in all: go on with offset %d", a.Size, a.NextOffset))
	}
	return parts
}

// cutRune removes the start of a character that ends on the next page.
func cutRune(a *filewire.Answer, b *bytes.Buffer) {
	n := chat.WholeRunes(b.Bytes())
	a.NextOffset -= int64(b.Len() - n)
	b.Truncate(n)
}
