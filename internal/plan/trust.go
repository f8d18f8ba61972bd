package plan

import (
	"os"

	"github.com/chatd/chatd/chat"
)

// InsideTrust is the bundle of certificates that the programs of a session trust, where that is not
// the host's.
const InsideTrust = InsideDir + "/ca-certificates.crt"

// trusted are the files in which Debian keeps what programs trust. A session with a bundle of its
// own sees that in their place.
const (
	trustedPEM = "/etc/ssl/certs/ca-certificates.crt"
	trustedJKS = "/etc/ssl/certs/java/cacerts"
)

// trustMounts put the session's bundle in the place of the host's files, as far as the host has
// them. A one-shot session has no bundle.
func (v View) trustMounts() (all []chat.Mount) {
	if v.TrustPEM == "" {
		return nil
	}
	over := []chat.Mount{
		bind(v.TrustPEM, trustedPEM, chat.ReadOnly), bind(v.TrustJKS, trustedJKS, chat.ReadOnly),
	}
	all = append(all, bind(v.TrustPEM, InsideTrust, chat.ReadOnly))
	for _, m := range over {
		if fi, err := os.Lstat(m.Target); err == nil && fi.Mode().IsRegular() {
			all = append(all, m)
		}
	}
	for i := range all {
		all[i].Optional = true
	}
	return all
}

// trustEnv names the bundle to programs that do not read the host's files, or bring their own.
func (v View) trustEnv() (all []string) {
	if v.TrustPEM == "" {
		return nil
	}
	for _, name := range []string{
		"SSL_CERT_FILE",       // OpenSSL, Go, Python, Ruby
		"NODE_EXTRA_CA_CERTS", // Node
		"REQUESTS_CA_BUNDLE",  // requests of Python
		"PIP_CERT", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	} {
		all = append(all, name+"="+InsideTrust)
	}
	return all
}
