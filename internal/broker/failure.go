package broker

import (
	"context"
	"errors"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/internal/quota"
)

// kinds are the errors that keep their identity across the socket, by their text.
var kinds = append(chat.Kinds(), context.Canceled)

// maxWords bounds an error's text, in bytes.
const maxWords = 64 << 10

// failure is an error in a packet.
type failure struct {
	Words  string            `json:"words"`
	Kinds  []string          `json:"kinds,omitempty"`
	Denial *filewire.Denial  `json:"denial,omitempty"`
	Spent  *quota.SpentError `json:"spent,omitempty"`
}

func failureOf(err error) failure {
	f := failure{Words: err.Error()}
	f.Words = f.Words[:min(len(f.Words), maxWords)]
	for _, k := range kinds {
		if errors.Is(err, k) {
			f.Kinds = append(f.Kinds, k.Error())
		}
	}
	errors.As(err, &f.Denial)
	errors.As(err, &f.Spent)
	return f
}

// remote is chatd-root's error in the front.
type remote struct {
	words string
	are   []error
}

// Error is the text from chatd-root.
func (r *remote) Error() string { return r.words }

// Unwrap returns the errors of package chat that it wraps, a denial, and a share that is used up.
func (r *remote) Unwrap() []error { return r.are }

func (f failure) err() error {
	r := &remote{words: f.Words}
	if f.Denial != nil {
		r.are = append(r.are, f.Denial)
	}
	if f.Spent != nil {
		r.are = append(r.are, f.Spent)
	}
	for _, k := range kinds {
		if slices.Contains(f.Kinds, k.Error()) {
			r.are = append(r.are, k)
		}
	}
	return r
}
