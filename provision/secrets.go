package provision

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/state"
)

// hostBundle is what the host trusts: the file that most programs read.
const hostBundle = "/etc/ssl/certs/ca-certificates.crt"

// maxBundle bounds what of it is copied for a session, in bytes.
const maxBundle = 4 << 20

// openSecrets derives what placeholders and certificates are made of, and reads the secrets.
func (m *Manager) openSecrets(ctx context.Context) (err error) {
	m.placeholders = secret.NewKeys(m.store.DeriveKey("placeholders"))
	if m.authority, err = gateway.NewAuthority(m.store.DeriveKey("authority"), time.Now()); err != nil {
		return err
	}
	return m.ReloadSecrets(ctx)
}

// ReloadSecrets reads the files of the secrets again. One that cannot be read keeps its value, and
// is a finding until it can.
func (m *Manager) ReloadSecrets(ctx context.Context) error {
	m.secretsMu.Lock()
	defer m.secretsMu.Unlock()
	var all []secret.Known
	for _, name := range slices.Sorted(maps.Keys(m.opt.Secrets)) {
		k, err := readSecret(name, m.opt.Secrets[name])
		if err != nil {
			k.Value = m.secretValues[name]
		}
		m.report("secret "+name, err)
		m.secretValues[name] = k.Value
		all = append(all, k)
	}
	return m.gateway.SetSecrets(ctx, all)
}

func readSecret(name string, spec secret.Spec) (secret.Known, error) {
	k := secret.Known{Name: name, Spec: spec}
	b, err := safefs.ReadPrivate(spec.File, secret.MaxValue+2) // the end of the line
	if err == nil {
		k.Value, err = secret.ParseValue(b)
	}
	if err != nil {
		return k, fmt.Errorf("cannot use secret %s of %s: %w", name, chat.Quote(spec.File), err)
	}
	return k, nil
}

// secretFindings are those of a host without a daemon.
func (m *Manager) secretFindings() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(m.opt.Secrets)) {
		if _, err := readSecret(name, m.opt.Secrets[name]); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

// grants are the secrets that a chat may use, by its id.
func (m *Manager) grants(id chat.ID) []secret.Grant {
	rec, err := m.store.Get(id)
	if err != nil {
		return nil // it is gone, and so is its use of secrets
	}
	return m.grantsOf(rec)
}

func (m *Manager) grantsOf(rec state.Record) (all []secret.Grant) {
	for _, name := range m.profile(rec).Secrets {
		placeholder := m.placeholders.Placeholder(rec.ID, name)
		all = append(all, secret.Grant{Name: name, Placeholder: placeholder})
	}
	return all
}

// secretVars are the variables of the placeholders of a chat.
func (m *Manager) secretVars(rec state.Record) (all []string) {
	for _, g := range m.grantsOf(rec) {
		if spec, known := m.opt.Secrets[g.Name]; known {
			all = append(all, spec.Env+"="+g.Placeholder)
		}
	}
	return all
}

// issueCertificate makes what chatd-egress shows a chat for a host.
func (m *Manager) issueCertificate(host string) ([]byte, error) {
	return m.authority.Issue(host, time.Now())
}

// usesSecrets reports whether sessions of the chat trust chatd's own authority.
func (m *Manager) usesSecrets(rec state.Record) bool { return len(m.profile(rec).Secrets) > 0 }

// writeTrust writes what the programs of a session trust, if it uses secrets.
func (m *Manager) writeTrust(rec state.Record) error {
	if !m.usesSecrets(rec) {
		return nil
	}
	host, err := hostRoots()
	if err != nil {
		return err
	}
	trust := m.authority.Trust(host)
	return m.sessionDir(rec.ID, rec.UID).WriteTrust(trust.PEM, trust.JKS)
}

// hostRoots reads hostBundle. Not every host has one.
func hostRoots() ([]byte, error) {
	b, err := os.ReadFile(hostBundle)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(b) > maxBundle {
		return nil, errors.Join(fmt.Errorf("cannot use %s of %d bytes", hostBundle, len(b)), err)
	}
	return b, nil
}
