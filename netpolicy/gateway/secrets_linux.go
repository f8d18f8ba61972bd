package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/internal/uplink"
)

// SecretOptions are the part of [Options] about secrets.
type SecretOptions struct {
	// Grants are those that a chat may use.
	Grants func(chat.ID) []secret.Grant
	// Issue makes a key and a certificate for a host, as PEM.
	Issue func(host string) ([]byte, error)
	// Roots are the authorities by which the servers of secrets are known, as PEM. Where there are
	// none chatd-egress has those of its own start.
	Roots func() ([]byte, error)
}

// Certificates are issued this many at once, and then one in so long: each costs CPU time of root's.
const (
	issuesAtOnce = 1024
	issueEvery   = 50 * time.Millisecond
)

// knownSecrets are those of the config.
type knownSecrets struct {
	all []secret.Known
	set bool // by SetSecrets
}

// SetSecrets replaces the secrets that chatd-egress puts into requests. One that does not take them
// is told again.
func (g *Gateway) SetSecrets(ctx context.Context, known []secret.Known) error {
	g.telling.Lock()
	defer g.telling.Unlock()
	g.mu.Lock()
	g.secrets = knownSecrets{known, true}
	conn := g.conn
	g.mu.Unlock()
	if conn == nil {
		return nil
	}
	if g.secretsLost = g.tellSecrets(ctx, conn); g.secretsLost != nil {
		g.tryAgain()
	}
	return g.secretsLost
}

// tellSecrets passes the secrets and Roots in files of memory, so that no message has a value. The
// caller holds telling.
func (g *Gateway) tellSecrets(ctx context.Context, conn *uplink.Conn) error {
	g.mu.Lock()
	known := g.secrets
	g.mu.Unlock()
	if !known.set {
		return nil
	}
	b, err := secret.Pack(known.all)
	if err != nil {
		return err
	}
	roots, err := g.opt.Secrets.Roots()
	if err != nil {
		return err
	}
	f, err := sealed("secrets", b)
	if err != nil {
		return err
	}
	r, err := sealed("roots", roots)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(g.tell(ctx, conn, uplink.Call{Verb: uplink.Secrets}, f, r), f.Close(), r.Close())
}

// changed is what chatd-egress is told of a chat that it has.
func (g *Gateway) changed(id chat.ID, allow []chat.Allow) uplink.Call {
	return uplink.Call{Verb: uplink.Change, Chat: id, Allow: allow, Grants: g.opt.Secrets.Grants(id)}
}

// sealed is a file of memory whose size is fixed.
func sealed(name string, b []byte) (*os.File, error) {
	f, err := sys.MemFile(name, b)
	if err == nil {
		if err = sys.SealAt(f, int64(len(b))); err != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot pass %s: %w", name, err)
	}
	return f, nil
}

// certificate answers with a key and a certificate for a host, if an open chat has a secret for it.
func (g *Gateway) certificate(c uplink.Call) (*os.File, error) {
	if _, err := g.chatOf(c.Chat); err != nil {
		return nil, err
	}
	grants := g.opt.Secrets.Grants(c.Chat)
	g.mu.Lock()
	has := slices.ContainsFunc(g.secrets.all, func(k secret.Known) bool {
		named := func(a secret.Grant) bool { return a.Name == k.Name }
		matches := func(a chat.Allow) bool { return a.MatchesHost(c.Host) }
		return slices.ContainsFunc(grants, named) && slices.ContainsFunc(k.Hosts, matches)
	})
	may := has && g.issues.Take() // chatd-egress keeps them
	g.mu.Unlock()
	switch {
	case !has:
		return nil, fmt.Errorf("cannot issue a certificate for %s: chat %s has no secret for it: %w",
			chat.Quote(c.Host), c.Chat, chat.ErrDenied)
	case !may:
		return nil, fmt.Errorf("cannot issue a certificate for %s: too many were asked for: %w",
			chat.Quote(c.Host), chat.ErrBusy)
	}
	b, err := g.opt.Secrets.Issue(c.Host)
	if err != nil {
		return nil, err
	}
	return sealed("certificate", b)
}
