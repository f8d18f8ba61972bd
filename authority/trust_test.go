package authority

import (
	"bytes"
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// TestKeyStore: Java's own tool reads the key store, and checks its digest.
func TestKeyStore(t *testing.T) {
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs keytool, and CHATD_TEST_REQUIRE=all")
		}
		t.Skip("SKIPPED: needs keytool")
	}
	file := filepath.Join(t.TempDir(), "cacerts")
	trust := made(t, "seed", now).Trust(made(t, "host", now).Certificate())
	if err := os.WriteFile(file, trust.JKS, 0o600); err != nil {
		t.Fatal(err)
	}
	list := exec.Command(keytool, "-list", "-storetype", "JKS", "-storepass", "changeit",
		"-keystore", file)
	out, err := list.CombinedOutput()
	if err != nil || strings.Count(string(out), "trustedCertEntry") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}
