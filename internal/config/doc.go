// Package config reads chatd's config: the file, the flags over it, and the defaults under it, each
// key checked at its place, and the files of rules that profiles name.
//
// An error names the file and the line, the key, its value and the expectation; all errors are
// reported together. An unknown key is an error. defaults.yaml documents the keys and is parsed
// like every config.
//
// # Runs as
//
// chatd-root, as root, at its start and at SIGHUP; commands of chatd that read the config, as their
// caller. It reads root's own files.
//
// # What it does not stop
//
// A user that may write the config decides what chats may do. This package only checks that paths
// are absolute; package provision checks them on the host.
package config
