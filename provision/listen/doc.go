// Package listen makes the unix socket of chatd's API, or takes over the one that systemd made,
// with the groups that may connect, and safe against a second daemon.
//
// # Runs as
//
// chatd-root, as root, at its start. The front accepts the connections.
//
// # What it does not stop
//
// A user who may write to the socket's directory can remove its name.
package listen
