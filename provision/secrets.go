package provision

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
	"github.com/chatd/chatd/provision/safefs"
	"github.com/chatd/chatd/provision/session"
)

// secrets are those of the config, and the keys that placeholders and certificates derive from. A chat
// whose profile names a secret has a placeholder in a variable; chatd-egress puts the value in its
// place on the way to the secret's hosts, for which it ends TLS with a certificate of chatd's own
// authority. Placeholders and the authority derive from the install key, so they outlive a restart.
// The values are in the files of the secrets, and in the memory of chatd-root and of chatd-egress.
// Nothing here protects them from root. A chat may use a secret for all that the secret's hosts allow.
type secrets struct {
	*chats
	gateway      *gateway.Gateway
	placeholders secret.Keys
	authority    *gateway.Authority
	mu           sync.Mutex // held while secrets are read and passed on
	values       map[string]secret.Value
}

// open derives what placeholders and certificates are made of, and reads the secrets.
func (s *secrets) open(ctx context.Context) (err error) {
	s.placeholders = secret.NewKeys(s.store.DeriveKey("placeholders"))
	if s.authority, err = gateway.NewAuthority(s.store.DeriveKey("authority"), time.Now()); err != nil {
		return err
	}
	return s.reload(ctx)
}

// reload reads the files of the secrets again. One that cannot be read keeps its value, and is a
// finding until it can.
func (s *secrets) reload(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []secret.Known
	for _, name := range slices.Sorted(maps.Keys(s.opt.Secrets)) {
		k, err := readSecret(name, s.opt.Secrets[name])
		if err != nil {
			k.Value = s.values[name]
		}
		s.trail.Report("secret "+name, err)
		s.values[name] = k.Value
		all = append(all, k)
	}
	return s.gateway.SetSecrets(ctx, all)
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

// findings are those of a host without a daemon.
func (s *secrets) findings() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.opt.Secrets)) {
		if _, err := readSecret(name, s.opt.Secrets[name]); err != nil {
			all = append(all, err.Error())
		}
	}
	return all
}

// grants are the secrets that a chat may use.
func (s *secrets) grants(id chat.ID) []secret.Grant {
	c, err := s.chats.get(id)
	if err != nil {
		return nil // it is gone, and so is its use of secrets
	}
	return s.grantsOf(c)
}

func (s *secrets) grantsOf(c subject) (all []secret.Grant) {
	for _, name := range c.profile.Secrets {
		all = append(all, secret.Grant{Name: name, Placeholder: s.placeholders.Placeholder(c.ID, name)})
	}
	return all
}

// vars are the variables of the placeholders of a chat.
func (s *secrets) vars(c subject) (all []string) {
	for _, g := range s.grantsOf(c) {
		if spec, known := s.opt.Secrets[g.Name]; known {
			all = append(all, spec.Env+"="+g.Placeholder)
		}
	}
	return all
}

// issue makes the certificate that chatd-egress shows a chat for a host.
func (s *secrets) issue(host string) ([]byte, error) { return s.authority.Issue(host, time.Now()) }

// writeTrust writes what the programs of a session that uses secrets trust.
func (s *secrets) writeTrust(dir session.Dir) error {
	host, err := hostRoots()
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

// hostRoots reads hostBundle. Not every host has one.
func hostRoots() ([]byte, error) {
	b, err := os.ReadFile(hostBundle)
	if err != nil && !errors.Is(err, os.ErrNotExist) || len(b) > maxBundle {
		return nil, errors.Join(fmt.Errorf("cannot use %s of %d bytes", hostBundle, len(b)), err)
	}
	return b, nil
}
