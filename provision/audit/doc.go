// Package audit writes what chatd does into the audit log, and remembers what it could not do.
//
// An act is audited before and after it ([Trail.Around]); one whose intent cannot be audited is not
// done. A denial is audited where it is decided. Findings are lasting faults, which reconcile could
// not repair: doctor shows them until they are gone. Failures are the latest acts that failed for a
// reason of chatd's own.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// It refuses nothing: its caller decides, and passes on the error of an audit that cannot be written.
// Details are the caller's: it quotes what a chat chose.
package audit
