package gateway

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if !bytes.HasPrefix(b, []byte(want)) || bytes.Count(b, []byte("\x00\x05X.509\x00\x00")) != 2 {
		t.Errorf("%q", b)
	}
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
