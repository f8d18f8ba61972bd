package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/uplink"
)

const (
	// maxLeaves bounds the certificates that are kept, and maxLeaf the bytes of one with its key.
	maxLeaves = 1024
	maxLeaf   = 16 << 10
	// renewBefore is how long before its end a certificate is no longer shown: a connection lasts.
	renewBefore = 24 * time.Hour
)

// leaves are the certificates by which clients know the hosts whose TLS is ended here. One serves
// every chat: all trust the same authority.
type leaves struct {
	making chan struct{} // one at a time: all that begin at once want the same
	mu     sync.Mutex
	kept   map[string]*tls.Certificate
}

// get returns the certificate of a host, which the chat has a secret for.
func (l *leaves) get(ctx context.Context, n *network, host string) (*tls.Certificate, error) {
	if kept := l.of(host); kept != nil {
		return kept, nil
	}
	select {
	case l.making <- struct{}{}:
		defer func() { <-l.making }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if kept := l.of(host); kept != nil {
		return kept, nil
	}
	made, err := n.s.root.certificate(ctx, n.id, host)
	if err != nil {
		return nil, failure{fmt.Errorf("cannot get a certificate for %s: %w", host, err)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for other := range l.kept {
		if len(l.kept) < maxLeaves {
			break
		}
		delete(l.kept, other)
	}
	l.kept[host] = made
	return made, nil
}

// of returns the certificate of a host that is kept, or nil.
func (l *leaves) of(host string) *tls.Certificate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kept := l.kept[host]; kept != nil && isValidAt(kept.Leaf, time.Now()) {
		return kept
	}
	return nil
}

// isValidAt reports whether a certificate holds for a while. One from before the clock was set back
// does not hold yet.
func isValidAt(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotBefore) && c.NotAfter.Sub(now) > renewBefore
}

// certificate asks chatd-root for a key and its certificate.
func (r *root) certificate(ctx context.Context, id chat.ID, host string) (*tls.Certificate, error) {
	f, err := r.file(ctx, uplink.Call{Verb: uplink.Certificate, Chat: id, Host: host})
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxLeaf))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(b, b)
	clear(b)
	if err != nil {
		return nil, err
	}
	return &c, nil
}
