package provision

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// TestAuditOutcome: whoever audits the end of an act returns its error, audited or not.
func TestAuditOutcome(t *testing.T) {
	m, rec := ruled(t, "")
	store, err := state.Open(state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	m.store = store
	boom := errors.New("boom")
	if err := m.auditOutcome(t.Context(), rec, "sleep", nil, boom); !errors.Is(err, boom) {
		t.Error(err)
	}
	if err := m.auditOutcome(t.Context(), rec, "sleep", nil, nil); err != nil {
		t.Error(err)
	}
	for _, ordinary := range []error{context.Canceled, fmt.Errorf("its turn ended: %w", chat.ErrBusy)} {
		_ = m.auditOutcome(t.Context(), rec, "run", nil, ordinary)
	}
	if len(m.failures) != 1 || m.failures[0].Action != "sleep" {
		t.Errorf("failures of the host: %+v, want the sleep alone", m.failures)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	err = m.auditOutcome(t.Context(), rec, "sleep", nil, boom)
	if !errors.Is(err, boom) || err.Error() == boom.Error() {
		t.Errorf("%v, want it and that it is not audited", err)
	}
}
