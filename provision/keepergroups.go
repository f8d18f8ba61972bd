package provision

import (
	"context"
	"errors"
	"time"

	"github.com/chatd/chatd/enforce"
)

// keeperPause is between two attempts to find the enforcer, or to start it again.
const keeperPause = time.Second

// watchKeeper holds the enforcer's fanotify groups beside it: when all of its processes end at
// once, opens in the sessions wait, and watchKeeper brings the enforcer back, which answers them. A
// session whose rules cannot be kept again is ended by the next reconcile ([Manager.checkKept]).
func (m *Manager) watchKeeper(ctx context.Context) {
	groups := enforce.NewGroups(m.keeperDir())
	said := ""
	for ctx.Err() == nil {
		err := groups.Follow(ctx)
		if errors.Is(err, enforce.ErrNoEnforcer) {
			err = m.keeperEnded(ctx, groups)
		}
		if err == nil || ctx.Err() != nil {
			said = ""
			continue
		}
		if why := err.Error(); why != said {
			said = why
			m.log.Error("the keeper is not back; what it is asked about waits", "why", why)
		}
		select {
		case <-time.After(keeperPause):
		case <-ctx.Done():
		}
	}
	if err := groups.Close(); err != nil {
		m.log.Error("cannot let go of the keeper's groups", "why", err)
	}
}

// keeperEnded starts the enforcer again if a session needs it. Otherwise it drops the groups, whose
// queue would grow with every name that is made, and waits until an enforcer was started.
func (m *Manager) keeperEnded(ctx context.Context, groups *enforce.Groups) error {
	if m.needsKeeper() {
		err := m.startKeeper(ctx)
		if err == nil {
			m.log.Warn("no process of the keeper of file rules was left; opens waited until it was back")
		}
		return err
	}
	err := groups.Drop()
	select {
	case <-m.raised:
	case <-ctx.Done():
	}
	return err
}

// needsKeeper reports whether a session has rules that the enforcer enforces.
func (m *Manager) needsKeeper() bool {
	for _, rec := range m.store.All() {
		s := m.session(rec.ID)
		if s != nil && s.init.Alive() && enforce.Needed(m.policy(rec), rec.Agent) {
			return true
		}
	}
	return false
}
