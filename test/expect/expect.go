// Package expect reports what does not hold, and lets the test go on. Package must ends the test.
//
// # What it does not stop
//
// The arguments of a message are evaluated also when nothing fails: they may not need what is
// checked.
package expect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// NoError reports an error that is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// True reports a message if ok is false.
func True(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

// Equal reports a value that is not the one that is wanted. The message says what the value is of.
func Equal[V comparable](t testing.TB, got, want V, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s%s, want %s", prefix(format, args), show(got), show(want))
	}
}

// Is reports an error that is not of the kind that is wanted, as errors.Is has it. The message says
// what was tried.
func Is(t testing.TB, err, kind error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%s%v, want %v", prefix(format, args), err, kind)
	}
}

// Err returns the error of a call, which is its last result.
func Err(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// prefix is the message, if any, before what differs.
func prefix(format string, args []any) string {
	return strings.TrimPrefix(fmt.Sprintf(format, args...)+": ", ": ")
}

// show quotes texts, so that white space is seen.
func show(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%+v", v)
}

// Says reports an error that is not of the kind that is wanted, or does not say the text; a kind of
// nil is any. The message says what was tried.
func Says(t testing.TB, err, kind error, text, format string, args ...any) {
	t.Helper()
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s%v, want %v that says %q", prefix(format, args), err, kind, text)
	}
}
