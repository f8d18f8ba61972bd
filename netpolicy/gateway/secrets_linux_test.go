package gateway

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
	"github.com/chatd/chatd/internal/uplink"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// known is a secret for api.example.org, with a value.
func known(t testing.TB, name, value string) secret.Known {
	t.Helper()
	h := must.Get(secret.ParseHeader("x-api-key: $"))(t)
	v := must.Get(secret.ParseValue([]byte(value)))(t)
	return secret.Known{Name: name, Value: v, Spec: secret.Spec{Header: h,
		Hosts: allow(t, "api.example.org:443")}}
}

// withSecrets is a gateway whose chat a has the secret api.
func withSecrets(t *testing.T, dir string) *Gateway {
	t.Helper()
	must.Root(t, "to join network namespaces")
	return follow(t, gatewayOf(Options{Dir: dir, UID: 60999, GID: 60998, Secrets: SecretOptions{
		Grants: func(id chat.ID) []secret.Grant {
			if id == b {
				return nil
			}
			return []secret.Grant{{Name: "api", Placeholder: "placeholder"}}
		},
		Roots: func() ([]byte, error) { return []byte("roots"), nil },
		Issue: func(host string) ([]byte, error) { return []byte("PEM of " + host), nil },
	}}))
}

// TestSecrets: chatd-egress hears the values before the chats, in a file, again after each change
// and after its own restart.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	g := withSecrets(t, dir)
	must.Do(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-one")}))
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	egress.heard("hello", "secrets  ++", "open "+string(a)+" +++")
	must.Do(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-two")}))
	egress.heard("secrets  ++")
	egress.mu.Lock()
	var values []string
	for _, f := range egress.files {
		b := make([]byte, 4096)
		n, err := f.ReadAt(b, 0)
		all, unpackErr := secret.Unpack(b[:n])
		if (err == nil || errors.Is(err, io.EOF)) && unpackErr == nil && len(all) > 0 {
			values = append(values, all[0].Value.Reveal())
		}
	}
	egress.mu.Unlock()
	expect.Equal(t, strings.Join(values, " "), "value-one value-two", "it has the values")
	egress.end()
	egress.heard("hello", "secrets  ++", "open "+string(a)+" +++")
}

// TestSecretsRefused: a chatd-egress that does not take secrets carries for the chats all the same; it is told again, and what is wrong is reported until it
// hears.
func TestSecretsRefused(t *testing.T) {
	dir := t.TempDir()
	g := withSecrets(t, dir)
	reports := make(chan error, 100)
	g.opt.Report = func(err error) { reports <- err }
	must.Do(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-one")}))
	egress := newCarrier(t, dir)
	egress.mu.Lock()
	egress.refuses = uplink.Secrets
	egress.mu.Unlock()
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)))
	for err := range reports {
		if err != nil && strings.Contains(err.Error(), "does not know") {
			break
		}
	}
	until(t, func() bool {
		egress.mu.Lock()
		defer egress.mu.Unlock()
		return slices.Contains(egress.calls, "open "+string(a)+" +++")
	})
	refuse := func(v uplink.Verb) {
		egress.mu.Lock()
		defer egress.mu.Unlock()
		egress.refuses = v
	}
	heard := func() {
		for err := range reports {
			if err == nil {
				return
			}
		}
	}
	refuse("")
	heard()
	refuse(uplink.Secrets)
	expect.True(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-two")}) != nil,
		"another value is taken")
	refuse("")
	egress.mu.Lock()
	told := len(egress.calls)
	egress.mu.Unlock()
	until(t, func() bool {
		egress.mu.Lock()
		defer egress.mu.Unlock()
		return slices.Contains(egress.calls[told:], "secrets  ++")
	})
}

// TestIssues: certificates are not issued without end.
func TestIssues(t *testing.T) {
	g := gatewayOf(Options{})
	n := 0
	for g.issues.Take() && n < 2*issuesAtOnce {
		n++
	}
	expect.True(t, n >= issuesAtOnce && n != 2*issuesAtOnce, "%d certificates are issued at once", n)
}

// TestCertificate: chatd-egress gets a certificate for what an open chat has a secret for, and for
// nothing else.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	g := withSecrets(t, dir)
	must.Do(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-one"),
		known(t, "ungranted", "value-two")}))
	other := known(t, "ungranted", "value-two")
	other.Hosts = allow(t, "other.example.org:443")
	must.Do(t, g.SetSecrets(t.Context(), []secret.Known{known(t, "api", "value-one"), other}))
	egress := newCarrier(t, dir)
	must.Do(t, g.Open(t.Context(), Chat{a, "", 70001, nil}, session(t)),
		g.Open(t.Context(), Chat{b, "", 70002, nil}, session(t)))
	until(t, func() bool { return answers(g) })
	for _, x := range []struct {
		chat chat.ID
		host string
		ok   bool
	}{
		{a, "api.example.org", true},
		{a, "other.example.org", false}, // a secret that it does not have
		{a, "example.org", false},       // no secret
		{a, "x.api.example.org", false}, // nor below
		{a, "", false},                  //
		{b, "api.example.org", false},   // a chat without it
		{c, "api.example.org", false},   // a chat that is not open
		{"../../x", "api.example.org", false},
	} {
		egress.mu.Lock()
		conn := egress.conn
		egress.mu.Unlock()
		call := uplink.Call{Verb: uplink.Certificate, Chat: x.chat, Host: x.host}
		_, files, err := conn.Call(context.Background(), call)
		if (err == nil) != x.ok || (len(files) == 1) != x.ok {
			t.Errorf("%s %s: %d files, %v", x.chat, x.host, len(files), err)
			continue
		}
		if x.ok {
			text, err := io.ReadAll(files[0])
			expect.True(t, err == nil && string(text) == "PEM of "+x.host, "%q, %v", text, err)
			must.Do(t, uplink.CloseFiles(files))
		}
	}
}
