package filerules

import (
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Fault is one error in a file of rules.
type Fault struct {
	// Place is file:line.
	Place string
	// Key is the key in the file, as access.rules[0].ops; empty for the file itself.
	Key string
	// Why states the value and the expectation.
	Why string
	// Line is Place's, by which faults are sorted.
	Line int `json:"-"`
}

// Error names the place, the key and what was expected.
func (f Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("cannot use %s: %s", f.Place, f.Why)
	}
	return fmt.Sprintf("cannot use %s: %s: %s", f.Place, f.Key, f.Why)
}

// Faults are all errors of a file, in its order. They are a [chat.ErrInvalid].
type Faults []Fault

// Error has one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap is [chat.ErrInvalid].
func (f Faults) Unwrap() error { return chat.ErrInvalid }
