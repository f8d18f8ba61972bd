// Package backup writes a state and a config into one file, and puts a state from such a file in
// place. It runs as root in the command line, beside the daemon: chatd-root only begins no commit
// while the database is copied, and the front has no part in it ([why]). Package state knows what a
// state is, and this package what a backup is.
//
// A backup is a tar archive (ustar, or pax for long names). Its first entry is [Manifest], in JSON;
// the others are the files that the manifest lists, in its order, with their sizes and SHA-256.
// Nothing else may be in it.
//
// # What it does not stop
//
// The hashes find damage. They do not stop a change: whoever can write the file can write a
// manifest too. A backup holds the install key and the audit log, in clear: keep it as root's, or
// encrypt it.
//
// A backup has no homes, no temporary directories and no terminal logs. Making one leaves no line
// in the audit log, as reading the files leaves none.
//
// [why]: https://github.com/chatd/chatd/blob/main/adrs/0071-backup.md
package backup
