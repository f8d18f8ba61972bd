package provision

import (
	"context"
	"path/filepath"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision/account"
	"github.com/chatd/chatd/provision/hostprobe"
	"github.com/chatd/chatd/state"
)

// probeID is the chat that probes act as. No chat gets its uid, and reconcile clears its remains
// after a crash as a session without a chat.
const probeID = hostprobe.ID

// openProber makes what tries the walls, and chooses the backend of new accounts.
func (m *Manager) openProber(ctx context.Context) (err error) {
	o := hostprobe.Options{
		UID: m.probeUID(), Profiles: m.opt.Profiles, Layers: m.layers, Starter: m.starter,
		Groups: m.groups, Units: m.units, Table: m.table, NoTable: m.noTable, Flows: m.gateway.Flows,
		Homes: m.paths.homes, HomeMode: m.homeMode(), Hidden: m.paths.profiles, Disks: m.diskQuotas,
		// A chat can fill the file system of the homes.
		HomeParent: m.paths.probe, TmpParent: filepath.Join(m.paths.probe, "tmp"),
		VarTmpParent: filepath.Join(m.paths.probe, "vartmp"),
		Chats:        m.someUsers, Log: m.log,
	}
	if m.units { // PAM knows only one directory
		o.TmpParent, o.VarTmpParent = m.paths.tmp, m.paths.varTmp
	}
	m.prober = hostprobe.New(o)
	m.account, err = m.prober.ChooseAccount(ctx, m.opt.Account, m.userdb, m.useradd)
	return err
}

// probe tries every wall, in sessions like any other.
func (m *Manager) probe(ctx context.Context) error {
	unlock, err := m.locks.lock(ctx, probeID)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := m.prober.Try(ctx, m.views.Of(m.viewer(state.Record{
		ID: probeID, UID: m.probeUID(), Profile: chat.DefaultProfile, Phase: chat.Ready,
	})))
	if err != nil {
		return err
	}
	m.layers.Put(found)
	return nil
}

// someUsers are the accounts of those of the first eight chats that are ready.
func (m *Manager) someUsers() (users []account.User) {
	if m.store == nil {
		return nil
	}
	all := m.store.All()
	for _, rec := range all[:min(len(all), 8)] {
		if rec.Phase == chat.Ready {
			users = append(users, m.accountOf(rec))
		}
	}
	return users
}
