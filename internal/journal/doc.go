// Package journal writes a program's log as its reader wants it: with systemd's priorities where
// standard error leads to the journal (sd-daemon(3)), and with times for people elsewhere.
//
// # Runs as
//
// The program that logs: chatd-root as root, the front as user chatd.
//
// # What it does not stop
//
// Any text of a chat in the log. log/slog quotes it.
package journal
