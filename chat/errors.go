package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The kinds of failure that a caller may branch on. Each crosses the API as a stable word, an HTTP
// status and an exit code; package api has the table.
var (
	// ErrInvalid: the request is malformed; repeating it does not help.
	ErrInvalid = errors.New("invalid")
	// ErrDenied: the caller may not do this.
	ErrDenied = errors.New("denied")
	// ErrNotFound: there is no such chat for this caller.
	ErrNotFound = errors.New("not found")
	// ErrExists: another object has that name already.
	ErrExists = errors.New("exists")
	// ErrWrongPhase: the chat exists, but its state does not allow this.
	ErrWrongPhase = errors.New("wrong phase")
	// ErrConflict: a condition that the request names does not hold; see [OnlyIf].
	ErrConflict = errors.New("conflict")
	// ErrUnsupported: this host or platform lacks the means.
	ErrUnsupported = errors.New("unsupported")
	// ErrBusy: a bound is reached or a lock is held; repeating the request later may help.
	ErrBusy = errors.New("busy")
)

// Invalid is an [ErrInvalid] with the text that [fmt.Errorf] makes.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), ErrInvalid)
}

// maxQuoted bounds a caller's text in an error, in bytes.
const maxQuoted = 64

// maxOutputQuoted bounds a program's output in an error, in bytes.
const maxOutputQuoted = 500

// Quote makes a caller's text safe to show in an error, a log and a terminal:
// quoted as Go source with only ASCII, and cut after 64 bytes.
func Quote(s string) string { return quote(s, maxQuoted) }

// QuoteOutput is [Quote] for the output of a program that failed. It cuts after 500 bytes, because
// the cause often stands after a long file name.
func QuoteOutput(s string) string { return quote(s, maxOutputQuoted) }

// QuotePath returns a text of a caller or a chat for the audit log: quoted, in ASCII, and long
// enough for any path.
func QuotePath(s string) string { return strconv.QuoteToASCII(s[:min(len(s), MaxPath)]) }

func quote(s string, limit int) string {
	if len(s) <= limit {
		return strconv.QuoteToASCII(s)
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "…"
}

// Kinds are the kinds of failure above. The text of each is a stable word.
func Kinds() []error {
	return []error{ErrInvalid, ErrDenied, ErrNotFound, ErrExists, ErrWrongPhase, ErrUnsupported,
		ErrConflict, ErrBusy}
}

// KindOf is the kind of an error, or nil. The text of an error without a kind is not for callers.
func KindOf(err error) error {
	for _, kind := range Kinds() {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// ErrorText is the text of err with each line's kind at its end at most once. An error that wraps
// another of its kind would repeat the kind.
func ErrorText(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		for short := withoutKind(line); withoutKind(short) != short; short = withoutKind(short) {
			line = short
		}
		lines[i] = line
	}
	return strings.Join(lines, "\n")
}

// ErrorReason is the text of err without its kind, for messages that begin with the kind.
func ErrorReason(err error) string { return withoutKind(ErrorText(err)) }

// withoutKind is a line without the kind at its end.
func withoutKind(line string) string {
	for _, kind := range Kinds() {
		if short, ok := strings.CutSuffix(line, ": "+kind.Error()); ok {
			return short
		}
	}
	return line
}

// Strict reads one JSON value into v. An unknown field is an error, because it may be a restriction
// that the reader cannot apply; so is any text after the value.
func Strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("text after its end")
	}
	return nil
}
