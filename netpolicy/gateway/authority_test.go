package gateway

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func made(t testing.TB, seed string, at time.Time) *Authority {
	t.Helper()
	return must.Get(NewAuthority([]byte(seed), at))(t)
}

func issued(t testing.TB, a *Authority, host string, at time.Time) *x509.Certificate {
	t.Helper()
	b := must.Get(a.Issue(host, at))(t)
	pair := must.Get(tls.X509KeyPair(b, b))(t)
	return pair.Leaf
}

func trusts(a *Authority, leaf *x509.Certificate, host string, at time.Time) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Certificate())
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: at})
	return err
}

// TestIssue: a certificate is for its host, for its days, and no other authority's.
func TestIssue(t *testing.T) {
	a := made(t, "seed", now)
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "org"
	for _, host := range []string{"api.example.org", long} {
		leaf := issued(t, a, host, now)
		expect.Is(t, trusts(a, leaf, host, now), nil, "%s", host)
		if leaf.IsCA || len(leaf.DNSNames) != 1 || !leaf.NotAfter.Equal(now.Add(leafLife)) ||
			!leaf.NotBefore.Equal(now.Add(-time.Hour)) {
			t.Errorf("%+v", leaf)
		}
		for what, err := range map[string]error{
			"another host":      trusts(a, leaf, "other.example.org", now),
			"below it":          trusts(a, leaf, "x."+host, now),
			"later":             trusts(a, leaf, host, now.Add(8*24*time.Hour)),
			"another authority": trusts(made(t, "other", now), leaf, host, now),
		} {
			expect.True(t, err != nil, "%s: %s", host, what)
		}
	}
	for _, host := range []string{"", "192.0.2.1", "*.example.org", "API.example.org", "a b",
		"a."} {
		if b, err := a.Issue(host, now); !errors.Is(err, chat.ErrInvalid) || b != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
}

// TestSameAfterRestart: what was signed before is trusted by those who trust the certificate of a
// later start, and the other way round.
func TestSameAfterRestart(t *testing.T) {
	later := now.Add(24 * time.Hour)
	a, b := made(t, "seed", now), made(t, "seed", later)
	expect.True(t, a.key.Equal(b.key) && !bytes.Equal(a.Certificate(), made(t, "other", now).Certificate()),
		"the key is not that of the seed")
	const host = "api.example.org"
	expect.NoError(t, errors.Join(trusts(b, issued(t, a, host, now), host, later),
		trusts(a, issued(t, b, host, later), host, later)))
}

// TestClockSteps: when the clock is set by a year, a host's new certificate is trusted by those who
// trust the authority since before.
func TestClockSteps(t *testing.T) {
	a := made(t, "seed", now)
	for _, years := range []int{-1, 1} {
		set := now.AddDate(years, 0, 0)
		const host = "api.example.org"
		expect.Is(t, trusts(a, issued(t, a, host, set), host, set), nil, "%d", years)
	}
}

// TestAuthority: it signs certificates of servers, and no authority below itself.
func TestAuthority(t *testing.T) {
	c := made(t, "seed", now).cert
	if !c.IsCA || !c.MaxPathLenZero || c.MaxPathLen != 0 || c.KeyUsage != x509.KeyUsageCertSign ||
		c.NotAfter.Before(now.AddDate(9, 11, 0)) ||
		!strings.HasPrefix(c.Subject.CommonName, "chatd ") {
		t.Errorf("%+v", c)
	}
}

// TestTrust: the bundle has the host's certificates and the authority's, whatever its last line is.
func TestTrust(t *testing.T) {
	a, other := made(t, "seed", now), made(t, "host", now).Certificate()
	for _, host := range [][]byte{nil, other, bytes.TrimSpace(other), append(other, '\n')} {
		trust := a.Trust(host)
		want := min(len(host), 1) + 1
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(trust.PEM) || !bytes.HasSuffix(trust.PEM, a.Certificate()) ||
			bytes.Count(trust.PEM, []byte("BEGIN")) != want {
			t.Errorf("%s", trust.PEM)
		}
	}
}

// TestKeyStore: the store has its entries and a digest; Java's own tool reads it, where there is
// one.
func TestKeyStore(t *testing.T) {
	trust := made(t, "seed", now).Trust(made(t, "host", now).Certificate())
	b := trust.JKS
	want := "\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x04ca-0"
	expect.True(t, bytes.HasPrefix(b, []byte(want)) && bytes.Count(b, []byte("\x00\x05X.509\x00\x00")) == 2,
		"%q", b)
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Log("the host has no keytool")
		return
	}
	file := filepath.Join(t.TempDir(), "cacerts")
	must.Do(t, os.WriteFile(file, b, 0o600))
	list := exec.Command(keytool, "-list", "-storetype", "JKS", "-storepass", "changeit",
		"-keystore", file)
	out, err := list.CombinedOutput()
	expect.True(t, err == nil && strings.Count(string(out), "trustedCertEntry") == 2, "%v\n%s", err, out)
}
