package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// TestAuditOutcome: whoever audits the end of an act returns its error, audited or not.
func TestAuditOutcome(t *testing.T) {
	rec := state.Record{ID: "00112233445566aa", UID: 70001}
	store, err := state.Open(state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	trail := New(store, slog.New(slog.DiscardHandler))
	boom := errors.New("boom")
	if err := trail.Outcome(t.Context(), rec, "sleep", nil, boom); !errors.Is(err, boom) {
		t.Error(err)
	}
	if err := trail.Outcome(t.Context(), rec, "sleep", nil, nil); err != nil {
		t.Error(err)
	}
	for _, ordinary := range []error{context.Canceled, fmt.Errorf("its turn ended: %w", chat.ErrBusy)} {
		_ = trail.Outcome(t.Context(), rec, "run", nil, ordinary)
	}
	if len(trail.failures) != 1 || trail.failures[0].Action != "sleep" {
		t.Errorf("failures of the host: %+v, want the sleep alone", trail.failures)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	err = trail.Outcome(t.Context(), rec, "sleep", nil, boom)
	if !errors.Is(err, boom) || err.Error() == boom.Error() {
		t.Errorf("%v, want it and that it is not audited", err)
	}
}
