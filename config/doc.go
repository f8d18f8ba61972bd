// Package config reads chatd's config: the file, the flags over it, and the defaults under it,
// each key checked where it stands, and the files of rules that profiles name.
//
// An error names the file and the line, the key, what stands there and what was expected; all
// errors come at once. A key that is not known is one. defaults.yaml is the documentation of
// the keys and is read as every config is.
//
// # Runs as
//
// chatd-root, as root, at its start and at SIGHUP; and whoever runs a command of chatd that
// looks at the config. It reads root's own files.
//
// # What it does not stop
//
// Whoever may write the config decides what chats may do. Of a path it says that it is
// absolute; what is there is looked at by package provision.
package config
