package gateway

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"slices"
	"unicode/utf16"
)

// Trust is what the programs of a session trust: what the host does, and the authority.
type Trust struct {
	// PEM is a bundle of certificates.
	PEM []byte
	// JKS is the same as a key store of Java, which reads no PEM (JDK 17).
	JKS []byte
}

// Trust adds the authority's certificate to the host's bundle, which may be empty.
func (a *Authority) Trust(host []byte) Trust {
	bundle := slices.Clip(bytes.TrimRight(host, "\n"))
	if len(bundle) > 0 {
		bundle = append(bundle, '\n')
	}
	bundle = append(bundle, a.Certificate()...)
	return Trust{PEM: bundle, JKS: keyStore(bundle)}
}

// The form of sun.security.provider.JavaKeyStore: version 2 with trusted certificates, and a digest
// with the password that every installation of Java has.
const (
	jksMagic    = 0xfeedfeed
	jksVersion  = 2
	jksTrusted  = 2
	jksPassword = "changeit"
	jksSalt     = "Mighty Aphrodite"
)

func keyStore(bundle []byte) []byte {
	var entries []byte
	n := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		entries = binary.BigEndian.AppendUint32(entries, jksTrusted)
		entries = appendUTF(entries, fmt.Sprintf("ca-%d", n))
		entries = binary.BigEndian.AppendUint64(entries, 0) // when it was made
		entries = appendUTF(entries, "X.509")
		entries = binary.BigEndian.AppendUint32(entries, uint32(len(block.Bytes)))
		entries = append(entries, block.Bytes...)
		n++
	}
	b := binary.BigEndian.AppendUint32(nil, jksMagic)
	b = binary.BigEndian.AppendUint32(b, jksVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	b = append(b, entries...)
	var salted []byte
	for _, u := range utf16.Encode([]rune(jksPassword)) {
		salted = binary.BigEndian.AppendUint16(salted, u)
	}
	digest := sha1.Sum(slices.Concat(salted, []byte(jksSalt), b))
	return append(b, digest[:]...)
}

// appendUTF is DataOutput.writeUTF of Java, for ASCII.
func appendUTF(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
