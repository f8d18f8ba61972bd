package provision

import (
	"errors"
	"testing"

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
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	err = m.auditOutcome(t.Context(), rec, "sleep", nil, boom)
	if !errors.Is(err, boom) || err.Error() == boom.Error() {
		t.Errorf("%v, want it and that it is not audited", err)
	}
}
