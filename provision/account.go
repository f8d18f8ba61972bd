package provision

import (
	"context"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/state"
)

func (m *Manager) accountOf(rec state.Record) account.User {
	return account.User{Name: rec.ID.User(), ID: rec.UID, Home: m.home(rec.ID)}
}

// createAccount writes the account and then looks the user up in the Name Service Switch by name
// and by number. A record that it does not read is not an account. Only [account.Try] looks the group
// up. For that nss-systemd reads every name in /etc/userdb, 3 ms at 1,000 chats.
//
// The chat's record names the backend, so that removeAccount uses the same one. An empty name
// means userdb: only the slow backend needs a second commit.
func (m *Manager) createAccount(ctx context.Context, rec state.Record) error {
	if m.without(chat.LayerAccount) {
		return nil
	}
	a := m.accountOf(rec)
	backend := m.accountBackendOf(rec)
	if rec.Account == "" && rec.Phase == chat.Creating {
		backend = m.account
	}
	if backend.Name() == account.UseraddName && rec.Account == "" {
		if err := m.store.SetAccount(rec.ID, account.UseraddName, m.event(ctx, rec, "create", "intent", map[string]string{"account": account.UseraddName})); err != nil {
			return err
		}
	}
	if err := backend.Create(ctx, a); err != nil || slices.Contains(m.opt.AllowMissing, chat.LayerAccount) {
		return err
	}
	return account.Resolves(ctx, a)
}

func (m *Manager) driftAccount(_ context.Context, rec state.Record) (string, error) {
	if m.without(chat.LayerAccount) {
		return "", nil
	}
	return m.accountBackendOf(rec).Drift(m.accountOf(rec))
}

func (m *Manager) removeAccount(ctx context.Context, rec state.Record) error {
	// rec may be older than the backend that createAccount has stored.
	if now, err := m.store.Get(rec.ID); err == nil {
		rec = now
	}
	return m.accountBackendOf(rec).Remove(ctx, m.accountOf(rec))
}

func (m *Manager) accountBackendOf(rec state.Record) account.Backend {
	if rec.Account == account.UseraddName {
		return m.useradd
	}
	return m.userdb
}

func (m *Manager) probeUID() uint32 { return m.opt.UIDs.High }

// dnsUID is that of sockets to DNS servers; no process has it.
func (m *Manager) dnsUID() uint32 { return m.opt.UIDs.High - 1 }
