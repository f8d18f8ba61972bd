package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/config/configfile"
)

// rootVerbs are what chatd-root does as root, in words.
var rootVerbs = map[string]string{
	"serve": "serve", "doctor": "probe the layers", "wall": "raise the wall",
}

// findProgram is where chatd-root lies; tests say another place.
var findProgram = config.FindProgram

// askRoot runs chatd-root for one act, and returns what it printed. Where that is not installed, the
// error is fs.ErrNotExist. Tests answer themselves.
var askRoot = runRoot

// fromRoot is the value that chatd-root prints for one act.
func fromRoot[T any](ctx context.Context, verb string, f configfile.Flags, more ...string) (v T, err error) {
	out, err := askRoot(ctx, verb, f, more...)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(out, &v); err != nil {
		return v, fmt.Errorf("cannot read what chatd-root found: %w", err)
	}
	return v, nil
}
