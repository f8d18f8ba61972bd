// Package listen makes the unix socket of chatd's API, or takes over the one that systemd made,
// with the groups that may connect, and safe against a second daemon.
//
// # Runs as
//
// chatd-root, as root, at its start. Connections are the front's.
//
// # What it does not stop
//
// Who may write to the socket's directory may take its name away.
package listen
