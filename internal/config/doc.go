// Package config is chatd's config, and what can be checked of it: each value by itself, and what
// several keys say together.
//
// Package configfile reads it from YAML, in a process without privilege. From there it comes in a
// compiled form, which [ReadCompiled] reads strictly: chatd-root reads no other.
//
// # Runs as
//
// chatd-root, as root, at its start and at SIGHUP; the config step, as a uid of nobody's; commands of
// chatd that read the config, as their caller. It reads root's own files.
//
// # What it does not stop
//
// A user that may write the config decides what chats may do. This package only checks that paths
// are absolute; package provision checks them on the host.
package config
