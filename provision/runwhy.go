package provision

import (
	"fmt"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/state"
)

// because notes what ends the run, unless something did before.
func (r *liveRun) because(by chat.EndedBy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == "" && !r.isOver() {
		r.by = by
	}
}

// endRunsBecause notes why the runs of a chat end, before they do.
func (m *Manager) endRunsBecause(id chat.ID, by chat.EndedBy) {
	for _, r := range m.runsOf(id) {
		r.because(by)
	}
}

// explain says in a result what ended the run, and which limits it met.
func (m *Manager) explain(rec state.Record, r *liveRun, res *chat.RunResult, kills uint64) {
	now, err := m.hits(rec.ID)
	if err != nil {
		m.log.Error("cannot look at the limits of a chat", "chat", rec.ID, "error", err)
	}
	r.mu.Lock()
	by := r.by
	r.mu.Unlock()
	if s := m.session(rec.ID); by == "" && res.Signal == "SIGKILL" && kills == 0 && !res.TimedOut && (s == nil || s.init.Ending()) {
		by = chat.EndedBySession
	}
	met := chat.LimitHits{OOMKills: kills, PidsRefused: now.Since(chat.LimitHits{PidsRefused: r.refused}).PidsRefused}
	res.Explain(by, r.info.Timeout, met, m.profile(rec).Limits)
	if len(res.Why) > 0 {
		m.log.Info("a run was ended or met a limit", "chat", rec.ID, "run", r.info.ID, "why", strings.Join(res.Why, "; "))
	}
}

// outOfMemory is the end of a chat's tool that the kernel ended for memory_max; empty if it did
// not.
func (m *Manager) outOfMemory(rec state.Record, kills uint64) string {
	words := chat.LimitHits{OOMKills: kills}.Words("the call", m.profile(rec).Limits)
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s", strings.Join(words, ""))
}
