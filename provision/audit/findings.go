package audit

import (
	"fmt"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
)

// Report records what reconcile could not mend, by its subject, or by nil that it is mended. doctor
// shows the finding until then.
func (t *Trail) Report(about string, err error) {
	if err == nil {
		t.findings.Delete(about)
		return
	}
	t.log.Error("cannot put right", "about", about, "error", err)
	t.findings.Store(about, err.Error())
}

// Findings are the lasting faults, each with its subject.
func (t *Trail) Findings() (all []string) {
	t.findings.Range(func(about, what any) bool {
		all = append(all, fmt.Sprintf("%s: %s", about, what))
		return true
	})
	return all
}

// HasRoom reports whether an act can begin, and records or clears a finding about it.
func (t *Trail) HasRoom() bool {
	err := t.store.Room()
	t.Report("the state directory", err)
	return err == nil
}

// maxFailures is how many failed acts are remembered for Status; the audit log has all.
const maxFailures = 10

// Remember keeps an act that failed for Status.
func (t *Trail) Remember(f chat.Failure) {
	f.At = time.Now().UTC()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, f)
	if over := len(t.failures) - maxFailures; over > 0 {
		t.failures = slices.Delete(t.failures, 0, over)
	}
}

// Failures are the acts that failed, the latest first.
func (t *Trail) Failures() []chat.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.failures)
	slices.Reverse(all)
	return all
}
