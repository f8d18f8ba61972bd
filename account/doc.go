// Package account makes and removes the Linux user and the group of a chat, where the Name Service
// Switch finds them.
//
// # Theory of operation
//
// There are two backends. [Userdb] writes a JSON record for each account, which nss-systemd(8)
// reads (adrs/0002). [Useradd] calls useradd(8) on hosts without it. A record that the host does
// not resolve is no account, so [Resolves] and [Verify] ask getent(1), and [Try] makes one to see.
// [CheckRange] refuses uids that the host uses.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Root, which can write the same files: Drift finds that, and who calls it mends it. Logins are
// stopped by the record (locked, or expired) and by its shell: a service that ignores both lets
// the user in. A range of uids that another program hands out later, or that a directory service
// has, is not seen by [CheckRange].
package account
