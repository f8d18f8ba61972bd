package backup

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestInterrupted: a restore that is told to stop changes nothing, also where its source is silent,
// and so does one whose whole backup was read; a backup stops too.
func TestInterrupted(t *testing.T) {
	file, _, dir := made(t)
	stop := errors.New("told to stop")
	silent, _ := io.Pipe()
	for what, in := range map[string]func(stop func()) io.Reader{
		"a silent source": func(stop func()) io.Reader { stop(); return silent },
		"amid silence": func(stop func()) io.Reader {
			return io.MultiReader(bytes.NewReader(file[:600]), stopping{stop}, silent)
		},
		"at its end": func(stop func()) io.Reader { return io.MultiReader(bytes.NewReader(file), stopping{stop}) },
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			to := filepath.Join(t.TempDir(), "state")
			o := RestoreOptions{State: to, UIDs: uids, By: root}
			_, err := Restore(ctx, in(func() { cancel(stop) }), o)
			if !errors.Is(err, stop) {
				t.Errorf("%v", err)
			}
			if _, err := os.Lstat(filepath.Join(to, "chatd.db")); err == nil {
				t.Error("a state was put in place")
			}
		})
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if _, err := Make(ctx, io.Discard, Options{State: dir}); !errors.Is(err, stop) {
		t.Errorf("a backup that is told to stop: %v", err)
	}
}

// stopping calls stop when it is read, and ends.
type stopping struct{ stop func() }

func (s stopping) Read([]byte) (int, error) { s.stop(); return 0, io.EOF }
