// Package configfile reads a config file: YAML, with the defaults under it and settings over it,
// each key at its place. It makes a [config.Config], and writes one as YAML.
//
// An error names the file and the line, the key, its value and the expectation; all errors are
// reported together. An unknown key is an error. defaults.yaml documents the keys and is parsed
// like every config.
//
// # Runs as
//
// The config step, as a uid of nobody's without a network, which chatd-root starts (adrs/0113); and
// commands of chatd that read the config, as their caller. chatd-root does not link it.
//
// # What it does not stop
//
// A user that may write the config decides what chats may do. chatd-root checks what came of it by
// package config, and package provision checks paths on the host.
package configfile
