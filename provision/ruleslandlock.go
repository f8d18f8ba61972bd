package provision

import (
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/state"
)

// closedBy returns the denied paths that bubblewrap masks in the chat's session, and those to
// which Landlock grants nothing. For a sleeping chat they are those of its next session, found by
// one look at the host.
func (m *Manager) closedBy(rec state.Record) (masked, leftOut []string) {
	if s := m.session(rec.ID); s != nil {
		return s.maskedPaths(), m.leftOutIn(m.sessionView(rec, s))
	}
	if closed := m.closedTo(rec); len(closed.Home)+len(closed.Outside) == 0 {
		return nil, nil
	}
	v, _, err := m.exposedView(rec)
	if err != nil {
		v.Masked = nil // a wake reports the error
	}
	return targets(v.Masked), m.leftOutIn(v)
}

// leftOutIn returns the denied paths to which Landlock grants nothing in a session of view v.
func (m *Manager) leftOutIn(v shims.View) []string {
	if m.without(chat.LayerLandlock) || len(v.Denied) == 0 {
		return nil
	}
	return v.LeftOut()
}

// rulesInLandlock adds to the layer landlock the number of denied paths that it enforces.
func (m *Manager) rulesInLandlock(l chat.Layer, rec state.Record, s *session) chat.Layer {
	if n := len(m.leftOutIn(m.sessionView(rec, s))); n > 0 {
		l.Probe += fmt.Sprintf("; file rules: nothing is granted at %d denied paths outside the home", n)
	}
	return l
}
