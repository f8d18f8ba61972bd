package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestAuditOutcome: whoever audits the end of an act returns its error, audited or not.
func TestAuditOutcome(t *testing.T) {
	rec := state.Record{ID: "00112233445566aa", UID: 70001}
	store, err := state.Open(state.Options{Dir: t.TempDir()})
	must.Do(t, err)
	trail := New(store, slog.New(slog.DiscardHandler))
	boom := errors.New("boom")
	expect.Is(t, trail.Outcome(t.Context(), rec, "sleep", nil, boom), boom, "")
	expect.NoError(t, trail.Outcome(t.Context(), rec, "sleep", nil, nil))
	for _, ordinary := range []error{context.Canceled, fmt.Errorf("its turn ended: %w", chat.ErrBusy)} {
		_ = trail.Outcome(t.Context(), rec, "run", nil, ordinary)
	}
	expect.True(t, len(trail.failures) == 1 && trail.failures[0].Action == "sleep",
		"failures of the host: %+v, want the sleep alone", trail.failures)
	must.Do(t, store.Close())
	err = trail.Outcome(t.Context(), rec, "sleep", nil, boom)
	expect.True(t, errors.Is(err, boom) && err.Error() != boom.Error(),
		"%v, want it and that it is not audited", err)
}
