// Package journal writes a program's log as its reader wants it: with systemd's priorities where
// standard error leads to the journal (sd-daemon(3)), and with times for people elsewhere.
//
// # Runs as
//
// Whoever logs: chatd-root as root, the front as user chatd.
//
// # What it does not stop
//
// Nothing. What a chat wrote comes quoted, as log/slog quotes it.
package journal
