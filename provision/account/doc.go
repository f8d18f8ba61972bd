// Package account makes and removes the Linux user and the group of a chat, where the Name Service
// Switch finds them.
//
// # Theory of operation
//
// There are two backends. [Userdb] writes a JSON record for each account, which nss-systemd(8)
// reads (adrs/0002). [Useradd] calls useradd(8) on hosts without it. A record that the host does
// not resolve is not an account, so [Resolves] and [Verify] ask getent(1), and [Try] makes one to see.
// [CheckRange] refuses uids that the host uses.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Root, which can write the same files: Drift finds that, and its caller repairs it. The record
// (locked, or expired) and its shell stop logins: a service that ignores both lets the user in.
// [CheckRange] does not see uids that another program assigns later, or that a directory service
// has.
package account
