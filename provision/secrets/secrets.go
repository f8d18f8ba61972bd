package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/netpolicy/gateway"
	"github.com/chatd/chatd/provision/audit"
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/state"
)

// Secrets are the secrets of the config, and the keys that placeholders and certificates derive from.
type Secrets struct {
	specs        map[string]secret.Spec
	gateway      *gateway.Gateway
	trail        *audit.Trail
	placeholders secret.Keys
	authority    *gateway.Authority
	mu           sync.Mutex // held while secrets are read and passed on
	values       map[string]secret.Value
}

// New returns secrets that nothing has read yet.
func New(specs map[string]secret.Spec, g *gateway.Gateway, trail *audit.Trail) *Secrets {
	return &Secrets{specs: specs, gateway: g, trail: trail, values: map[string]secret.Value{}}
}

// Open derives what placeholders and certificates are made of, and reads the secrets.
func (s *Secrets) Open(ctx context.Context, store *state.Store) (err error) {
	s.placeholders = secret.NewKeys(store.DeriveKey("placeholders"))
	if s.authority, err = gateway.NewAuthority(store.DeriveKey("authority"), time.Now()); err != nil {
		return err
	}
	return s.Reload(ctx)
}

// Reload reads the files of the secrets again. One that cannot be read keeps its value, and is a
// finding until it can.
func (s *Secrets) Reload(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []secret.Known
	for _, name := range slices.Sorted(maps.Keys(s.specs)) {
		k, err := read(name, s.specs[name])
		if err != nil {
			k.Value = s.values[name]
		}
		s.trail.Report("secret "+name, err)
		s.values[name] = k.Value
		all = append(all, k)
	}
	return s.gateway.SetSecrets(ctx, all)
}

func read(name string, spec secret.Spec) (secret.Known, error) {
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

// Findings are those of a host without a daemon.
func (s *Secrets) Findings() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.specs)) {
		if _, err := read(name, s.specs[name]); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

// Grants are the secrets of these names with the placeholders of a chat.
func (s *Secrets) Grants(id chat.ID, names []string) (all []secret.Grant) {
	for _, name := range names {
		all = append(all, secret.Grant{Name: name, Placeholder: s.placeholders.Placeholder(id, name)})
	}
	return all
}

// Vars are the variables of the placeholders of a chat.
func (s *Secrets) Vars(id chat.ID, names []string) (all []string) {
	for _, g := range s.Grants(id, names) {
		if spec, known := s.specs[g.Name]; known {
			all = append(all, spec.Env+"="+g.Placeholder)
		}
	}
	return all
}

// Issue makes the certificate that chatd-egress shows a chat for a host.
func (s *Secrets) Issue(host string) ([]byte, error) { return s.authority.Issue(host, time.Now()) }

// WriteTrust writes what the programs of a session that uses secrets trust.
func (s *Secrets) WriteTrust(dir session.Dir) error {
	host, err := HostRoots()
	if err != nil {
		return err
	}
	trust := s.authority.Trust(host)
	return dir.WriteTrust(trust.PEM, trust.JKS)
}

const (
	// hostBundle is what the host trusts: the file that most programs read.
	hostBundle = "/etc/ssl/certs/ca-certificates.crt"
	// maxBundle bounds what of it is copied for a session, in bytes.
	maxBundle = 4 << 20
)

// HostRoots reads hostBundle. Not every host has one.
func HostRoots() ([]byte, error) {
	b, err := os.ReadFile(hostBundle)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(b) > maxBundle {
		return nil, errors.Join(fmt.Errorf("cannot use %s of %d bytes", hostBundle, len(b)), err)
	}
	return b, nil
}
