package chat

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The kinds of failure a caller may branch on. Each crosses the API as a stable
// word, an HTTP status and an exit code; the one table that says which is in
// package api.
var (
	// ErrInvalid: the request cannot be meant; asking again will not help.
	ErrInvalid = errors.New("invalid")
	// ErrDenied: the caller may not do this.
	ErrDenied = errors.New("denied")
	// ErrNotFound: there is no such chat for this caller.
	ErrNotFound = errors.New("not found")
	// ErrExists: something of that name is there already and is not this.
	ErrExists = errors.New("exists")
	// ErrWrongPhase: the chat is there, but not in a state that allows this.
	ErrWrongPhase = errors.New("wrong phase")
	// ErrConflict: a condition of the request's own does not hold; see [OnlyIf].
	ErrConflict = errors.New("conflict")
	// ErrUnsupported: this host or this platform cannot do it.
	ErrUnsupported = errors.New("unsupported")
	// ErrBusy: a bound was reached or somebody else holds it; asking again later may help.
	ErrBusy = errors.New("busy")
)

// maxQuoted bounds how much of a caller's text comes back in an error.
const maxQuoted = 64

// maxOutputQuoted bounds the same of what a program said.
const maxOutputQuoted = 500

// Quote makes a caller's text safe to show in an error, a log and a terminal:
// quoted as Go source with only ASCII, and cut after 64 bytes.
func Quote(s string) string { return quote(s, maxQuoted) }

// QuoteOutput is [Quote] for what a program said that failed: cut after 500 bytes, for
// names of files are long, and what is wrong stands behind them.
func QuoteOutput(s string) string { return quote(s, maxOutputQuoted) }

func quote(s string, most int) string {
	if len(s) <= most {
		return strconv.QuoteToASCII(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "…"
}

// Kinds are the kinds of failure above; what each says of itself is a stable word.
func Kinds() []error {
	return []error{ErrInvalid, ErrDenied, ErrNotFound, ErrExists, ErrWrongPhase, ErrUnsupported, ErrConflict, ErrBusy}
}

// KindOf is the kind of an error; nil for one of none, which is not for callers to read.
func KindOf(err error) error {
	for _, kind := range Kinds() {
		if errors.Is(err, kind) {
			return kind
		}
	}
	return nil
}

// ErrorText is err in words, each line with its kind at its end at most once: an error of
// a kind that wraps another of that kind says it twice.
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

// ErrorReason is err in words without its kind, for whoever says the kind first.
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
