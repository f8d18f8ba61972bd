// Package authority is the certificate authority of one chatd, which only its own chats trust.
//
// # Theory of operation
//
// chatd-egress ends TLS for the hosts of a secret. It shows the chat a certificate of the host,
// which [Authority.Issue] signs here: for one host, for some days. The sessions of chats with a
// secret trust [Authority.Certificate], and nothing else of the host does.
//
// The key is derived from a seed, which is of the install key. So there is no file that could be
// lost or read apart from that: a backup has it, a restore brings it back, and what sessions trust
// is the same after each start of chatd-root.
//
// # Runs as
//
// root, in chatd-root. It links no TLS.
//
// # What it does not stop
//
// The package issues a certificate for any host; package gateway checks who may have it. A program
// outside of sessions that trusts the authority's certificate trusts all who have the install key.
package authority
