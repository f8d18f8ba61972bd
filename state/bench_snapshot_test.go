package state

import (
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
)

// BenchmarkSnapshot copies and verifies a state of 10,000 chats, of which the copy of the database
// is the part that a daemon may overtake.
func BenchmarkSnapshot(b *testing.B) {
	s := fresh(b)
	s.db.NoSync = true
	for i := range 10_000 {
		spec := chat.Spec{ExternalID: fmt.Sprint("telegram:", i)}
		if _, _, err := s.Admit(spec, event("create", "intent")); err != nil {
			b.Fatal(err)
		}
	}
	s.db.NoSync = false
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	live, err := openPrivate(s.db.Path(), 0)
	if err != nil {
		b.Fatal(err)
	}
	defer live.Close()
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			db, f, err := copyDB(live)
			if err != nil {
				b.Fatal(err)
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			snap, err := TakeSnapshot(b.Context(), s.opts.Dir)
			if err != nil {
				b.Fatal(err)
			}
			if err := snap.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
