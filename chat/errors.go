package chat

import (
	"errors"
	"strconv"
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
	// ErrUnsupported: this host or this platform cannot do it.
	ErrUnsupported = errors.New("unsupported")
	// ErrBusy: a bound was reached or somebody else holds it; asking again later may help.
	ErrBusy = errors.New("busy")
)

// maxQuoted bounds how much of a caller's text comes back in an error.
const maxQuoted = 64

// Quote makes a caller's text safe to show in an error, a log and a terminal:
// quoted as Go source with only ASCII, and cut after 64 bytes.
func Quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	cut := maxQuoted
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "…"
}
