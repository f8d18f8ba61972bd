package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	"github.com/chatd/chatd/chat"
)

const (
	// authorityLife is how long its own certificate holds, before and after it is made: the clock
	// may be set while chats trust it.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	// backdated is how long a host's certificate holds before it is made: clocks differ.
	backdated = time.Hour
	// tries is how many keys are derived until one is valid; the first one is, except for one seed in
	// 2^32.
	tries = 8
)

// Authority signs certificates. Its methods are safe for concurrent use.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority returns the authority of a seed: always the same key and name, with a certificate
// that holds for ten years before now and after.
func NewAuthority(seed []byte, now time.Time) (*Authority, error) {
	key, err := derive(seed)
	if err == nil {
		a := &Authority{key: key}
		if err = a.certify(now); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("cannot make the authority of this host: %w", err)
}

func derive(seed []byte) (*ecdsa.PrivateKey, error) {
	for i := range tries {
		info := fmt.Sprintf("chatd certificate authority %d", i)
		b, err := hkdf.Key(sha256.New, seed, nil, info, 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), b); err == nil {
			return key, nil
		}
	}
	return nil, chat.Invalid("no key of the seed is valid")
}

// certify makes the authority's own certificate. Its name is the key's, so that what was signed
// before a restart is trusted after it.
func (a *Authority) certify(now time.Time) error {
	public, err := a.key.PublicKey.Bytes()
	if err != nil {
		return err
	}
	print := sha256.Sum256(public)
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(print[:8]),
		Subject:               pkix.Name{Organization: []string{"chatd"}},
		NotBefore:             now.Add(-authorityLife),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	template.Subject.CommonName = "chatd " + hex.EncodeToString(print[:4])
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return err
	}
	a.cert, err = x509.ParseCertificate(der)
	return err
}

// Certificate is the authority's own, as PEM.
func (a *Authority) Certificate() []byte { return certificatePEM(a.cert.Raw) }

// Issue makes a key and its certificate for a host in the form of [chat.CheckHost], which holds
// from now on. It returns both as PEM.
func (a *Authority) Issue(host string, now time.Time) ([]byte, error) {
	b, err := a.issue(host, now)
	if err != nil {
		return nil, fmt.Errorf("cannot issue a certificate for %s: %w", chat.Quote(host), err)
	}
	return b, nil
}

func (a *Authority) issue(host string, now time.Time) ([]byte, error) {
	if checked, err := chat.CheckHost(host); err != nil || checked != host {
		return nil, chat.Invalid("want a host name in lower case")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial := make([]byte, 16)
	rand.Read(serial) // never fails, says crypto/rand
	serial[0] &= 0x7f
	template := &x509.Certificate{
		SerialNumber:          new(big.Int).SetBytes(serial),
		Subject:               pkix.Name{Organization: []string{"chatd"}}, // a host may be too long
		NotBefore:             now.Add(-backdated),
		NotAfter:              now.Add(leafLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		DNSNames:              []string{host},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(certificatePEM(der),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
