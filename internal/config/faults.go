package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Faults are errors of a config, each with the place of its key.
type Faults struct {
	Places map[string]string // of a key: a file's name and line, or what a setting comes from
	keys   []string          // that have a fault
	errs   []error
}

// Add adds err as a fault of the key, if it is one, and the first there.
func (f *Faults) Add(key string, err error) {
	if err == nil || slices.Contains(f.keys, key) {
		return
	}
	f.keys = append(f.keys, key)
	f.errs = append(f.errs, faultAt(f.Places, key, err))
}

// AddUnplaced adds an error that names its place itself.
func (f *Faults) AddUnplaced(err error) { f.errs = append(f.errs, err) }

// Err is all of them; nil if there is none.
func (f *Faults) Err() error { return errors.Join(f.errs...) }

// Faulty reports whether the key, or one in it, has a fault.
func (f *Faults) Faulty(key string) bool {
	return slices.ContainsFunc(f.keys, func(k string) bool {
		rest, in := strings.CutPrefix(k, key)
		return in && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// faultAt is an error of a key at the place where it is written, or the nearest that encloses it.
func faultAt(places map[string]string, key string, err error) error {
	for at := key; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if place, ok := places[at]; ok {
			return fmt.Errorf("cannot use %s: %s: %w", place, key, err)
		}
	}
	return fmt.Errorf("cannot use %s: %w", key, err)
}

// Wrong is the error of a value that is something else than wanted.
func Wrong(text, want string) error {
	return chat.Invalid("%s: want %s", chat.Quote(text), want)
}
