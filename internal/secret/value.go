package secret

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"

	"github.com/chatd/chatd/chat"
)

// Bounds of a value, in bytes. A shorter one would be found by chance in any answer.
const (
	MinValue = 8
	MaxValue = 8 << 10
)

// hidden is what a value looks like.
const hidden = "********"

// Value is the value of a secret. Its zero value is none. Whatever formats it, logs it or marshals
// it gets asterisks.
type Value struct {
	text *string // not a string, which fmt prints where a field of that type is not exported
}

// ParseValue reads the content of a secret's file: one line, whose end is cut. The error does not
// tell what is in it.
func ParseValue(content []byte) (Value, error) {
	line := bytes.TrimSuffix(bytes.TrimSuffix(content, []byte("\n")), []byte("\r"))
	if len(line) < MinValue || len(line) > MaxValue {
		return Value{}, chat.Invalid("it has %d bytes: want one line of %d to %d",
			len(line), MinValue, MaxValue)
	}
	for _, c := range line {
		if c <= ' ' || c > '~' {
			return Value{}, chat.Invalid("want one line of visible ASCII characters")
		}
	}
	text := string(line)
	return Value{&text}, nil
}

// Reveal returns the value itself.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

// IsZero reports whether there is no value.
func (v Value) IsZero() bool { return v.text == nil }

// String hides the value.
func (v Value) String() string { return hidden }

// Format hides the value from every verb of package fmt.
func (v Value) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// MarshalText hides the value.
func (v Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the value.
func (v Value) LogValue() slog.Value { return slog.StringValue(hidden) }
