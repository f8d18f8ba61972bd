package masks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
)

const (
	free     = filerules.Open
	readOnly = filerules.ReadOnly
	closed   = filerules.Closed
)

// all are places of each class: a closed file, a read-only one, and one that stays open in a
// closed directory.
func (w *world) all() []pathclass.Place {
	return []pathclass.Place{
		w.place("closed", closed, free), w.place("fixed", readOnly, free),
		w.place("d", closed, free), w.place("d/in", free, closed),
	}
}

// ids are the mounts of the masks, by path.
func (w *world) ids() map[string]uint64 {
	all := map[string]uint64{}
	for _, m := range w.Mounted {
		all[m.Path] = m.ID
	}
	return all
}

// TestApply: each place gets its mount, before whose attachment opens there are watched. By the
// same places nothing is mounted or unmounted; by others only what differs. Root passes modes: a
// mask of a closed file reads as empty.
func TestApply(t *testing.T) {
	names := []string{"free", "closed", "fixed", "d/in", "d/secret"}
	inWorld(t, func(w *world) error {
		if err := w.apply(w.all()...); err != nil {
			return err
		}
		const want = "free=x+ closed=+ fixed=x d/in=x+ d/secret=-"
		if got := w.looks(names...); got != want || w.marked != 2 || len(w.forgotten) != 0 {
			t.Errorf("first: %s, want %s; %d are marked, want 2", got, want, w.marked)
		}
		first := w.ids()
		if err := w.apply(w.all()...); err != nil {
			return err
		}
		if got := w.ids(); fmt.Sprint(got) != fmt.Sprint(first) || w.marked+len(w.forgotten) != 0 {
			t.Errorf("again: %v, were %v; %d marked, removed %v", got, first, w.marked, w.forgotten)
		}
		if err := w.apply(w.all()[1]); err != nil {
			return err
		}
		const later = "free=x+ closed=x+ fixed=x d/in=x+ d/secret=x+"
		expect.Equal(t, w.looks(names...), later, "by one of four")
		fixed := filepath.Join(w.dir, "fixed")
		if got := w.ids(); len(got) != 1 || got[fixed] != first[fixed] {
			t.Errorf("by one of four: %v, want %d alone", got, first[fixed])
		}
		for _, name := range []string{"closed", "d"} {
			expect.True(t, slices.Contains(w.forgotten, first[filepath.Join(w.dir, name)]),
				"opens by the mount over %s are still allowed", name)
		}
		return nil
	})
}

// TestInsideException: what stays open in a closed directory can be written to only when what is
// closed inside it is masked.
func TestInsideException(t *testing.T) {
	inWorld(t, func(w *world) error {
		err := w.apply(w.place("d", closed, free), w.place("d/pub", free, closed),
			w.place("d/pub/secret", closed, free))
		const want = "d/in=- d/pub/free=x+ d/pub/secret=+"
		expect.Equal(t, w.looks("d/in", "d/pub/free", "d/pub/secret"), want, "")
		expect.True(t, w.marked == 1 && w.frozen == 1,
			"%d marked, of which %d read-only, want 1", w.marked, w.frozen)
		return err
	})
}

// TestMoved: a place whose file is another by now is not masked; the caller walks again.
func TestMoved(t *testing.T) {
	inWorld(t, func(w *world) error {
		was := w.place("closed", closed, free)
		err := os.Rename(filepath.Join(w.dir, "free"), filepath.Join(w.dir, "closed"))
		if err != nil {
			return err
		}
		if err := w.apply(was); !errors.Is(err, ErrMoved) || len(w.Mounted) != 0 {
			t.Errorf("%v, %d mounts, want %v", err, len(w.Mounted), ErrMoved)
		}
		return w.apply(w.place("closed", closed, free))
	})
}

// TestReplaced: a mask that other rules replace is there until the new one is, also where the
// kernel cannot mount below another mount.
func TestReplaced(t *testing.T) {
	for _, noSwap := range []bool{false, true} {
		inWorld(t, func(w *world) error {
			w.NoSwap = noSwap
			if err := w.apply(w.place("closed", closed, free)); err != nil {
				return err
			}
			if err := w.apply(w.place("closed", readOnly, free)); err != nil {
				return err
			}
			if got := w.looks("closed"); got != "closed=x" || w.marked != 1 {
				t.Errorf("read-only: %s, %d are marked", got, w.marked)
			}
			if noSwap { // what lies below is the caller's to find, among the mounts
				return nil
			}
			err := w.apply()
			expect.Equal(t, w.looks("closed"), "closed=x+", "open")
			return err
		})
	}
}
