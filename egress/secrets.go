package egress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/egress/redact"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/uplink"
)

// maxSecrets bounds the file that has all secrets, in bytes: JSON may write a character of a value
// as six, and hosts and a form take their part.
const maxSecrets = secret.MaxSecrets * (6*secret.MaxValue + 16<<10)

// maxRoots bounds the file of authorities, in bytes.
const maxRoots = 4 << 20

// secrets are what chatd-root has told of them. A change reaches the next request of each chat.
type secrets struct {
	mu    sync.Mutex
	known map[string]*knownSecret
}

type knownSecret struct {
	secret.Known
	before secret.Value // the last rotation; servers may still send it
}

// granted is a secret that a chat may use.
type granted struct {
	*knownSecret
	placeholder string
}

// setSecrets replaces the secrets by those in a file, and the authorities by which their servers are
// known by those in another, if that has some. It closes files.
func (s *server) setSecrets(files []*os.File) error {
	if len(files) != 2 {
		err := fmt.Errorf("cannot use %d files as %s", len(files), uplink.Secrets)
		return errors.Join(err, uplink.CloseFiles(files))
	}
	b, err := io.ReadAll(io.LimitReader(files[0], maxSecrets))
	pem, errPEM := io.ReadAll(io.LimitReader(files[1], maxRoots))
	if err = errors.Join(err, errPEM, uplink.CloseFiles(files)); err != nil {
		return fmt.Errorf("cannot read the secrets: %w", err)
	}
	all, err := secret.Unpack(b)
	clear(b)
	if err != nil {
		return err
	}
	s.secrets.set(all)
	roots := x509.NewCertPool()
	switch {
	case roots.AppendCertsFromPEM(pem):
		s.terminator.roots.Store(roots)
	case len(pem) > 0:
		return errors.New("cannot use the authorities of the host: no certificate is in their file")
	}
	return nil
}

func (s *secrets) set(all []secret.Known) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]*knownSecret{}
	for _, k := range all {
		next := &knownSecret{Known: k}
		if old := s.known[k.Name]; old != nil {
			next.before = old.before
			switch {
			case k.Value.IsZero(): // its file cannot be read now
				next.Value = old.Value
			case old.Value.Reveal() != k.Value.Reveal():
				next.before = old.Value
			}
		}
		known[k.Name] = next
	}
	s.known = known
}

// grant replaces the secrets that an open chat may use.
func (s *server) grant(id chat.ID, grants []secret.Grant) {
	if n := s.network(id); n != nil {
		n.mu.Lock()
		n.grants = grants
		n.mu.Unlock()
	}
}

// secretsFor are those that the chat may use at a target.
func (n *network) secretsFor(t target) (all []granted) {
	if t.host == "" {
		return nil
	}
	n.mu.Lock()
	grants := n.grants
	n.mu.Unlock()
	n.s.secrets.mu.Lock()
	defer n.s.secrets.mu.Unlock()
	for _, g := range grants {
		if k := n.s.secrets.known[g.Name]; k != nil && k.IsFor(t.host, t.dst.Port()) {
			all = append(all, granted{k, g.Placeholder})
		}
	}
	return all
}

// errNoValue is the error of a request with the placeholder of a secret whose file was never read.
var errNoValue = errors.New("chatd has no value for the placeholder in it")

// putSecrets puts values in the place of placeholders, and reports whether it did. A header is
// either the whole form of a secret with the chat's own placeholder, and there once, or stays as it
// is: a server may join several to one.
func putSecrets(h http.Header, all []granted) (put bool, err error) {
	for _, g := range all {
		v := h[g.Header.Name()]
		if len(v) != 1 || !g.Header.Has(v[0], g.placeholder) {
			continue
		}
		if g.Value.IsZero() {
			return put, errNoValue
		}
		h[g.Header.Name()], put = []string{g.Header.With(g.Value.Reveal())}, true
	}
	return put, nil
}

// traces are the texts that must not reach the chat.
func traces(all []granted) (texts []string) {
	for _, g := range all {
		for _, v := range []secret.Value{g.Value, g.before} {
			if !v.IsZero() {
				for _, text := range g.Header.Traces(v) {
					texts = append(texts, redact.Escaped(text)...)
				}
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
