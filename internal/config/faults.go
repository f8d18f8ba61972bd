package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// faults are errors of a config, each with the place of its key.
type faults struct {
	places map[string]string // of a key: a file's name and line, or what a setting comes from
	keys   []string          // that have a fault
	errs   []error
}

// fault adds err as a fault of the key, if it is one, and the first there.
func (f *faults) fault(key string, err error) {
	if err == nil || slices.Contains(f.keys, key) {
		return
	}
	f.keys = append(f.keys, key)
	f.errs = append(f.errs, faultAt(f.places, key, err))
}

// faulty reports whether the key, or one in it, has a fault.
func (f *faults) faulty(key string) bool {
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

func wrong(text, want string) error {
	return fmt.Errorf("%s: want %s: %w", chat.Quote(text), want, chat.ErrInvalid)
}

func unknownKey(key string) error {
	return fmt.Errorf("unknown key %s: want a key of chatd serve --check: %w", chat.Quote(key), chat.ErrInvalid)
}
