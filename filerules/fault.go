package filerules

import (
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Fault is one thing that is wrong with a file of rules.
type Fault struct {
	// Place is file:line.
	Place string
	// Key is where in the file, as access.rules[0].ops; empty for the file as such.
	Key string
	// Why says what stands there and what was expected.
	Why  string
	line int
}

// Error names the place, the key and what was expected.
func (f Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("cannot use %s: %s", f.Place, f.Why)
	}
	return fmt.Sprintf("cannot use %s: %s: %s", f.Place, f.Key, f.Why)
}

// Faults is everything that is wrong with a file, in its order. It is a [chat.ErrInvalid].
type Faults []Fault

// Error has one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes faults of a file a mistake of who wrote it.
func (f Faults) Unwrap() error { return chat.ErrInvalid }
