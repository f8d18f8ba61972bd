// Package rulefile reads files of file rules, in YAML or JSON5, and compiles them to policies of
// package filerules: braces written out, and every rule with the line that it stands in.
//
//	access:
//	  mode: deny-wins                 # or first-match
//	  useDefaults: true               # ~/.ssh/** ~/.gnupg/** **/.env **/secrets/**
//	  deny: ["~/keys/**"]             # every operation
//	  rules:
//	    - {deny: "**/*.pem", ops: [write, edit]}
//	agents:
//	  main:
//	    access:
//	      rules: [{allow: "~/keys/public/**"}]
//
// [Load] reports all faults of a file together. specs/0003-file-rules.md defines the language, which
// is that of Clawdbot's path rules, and what they leave open.
//
// # Runs as
//
// The config step, as a uid of nobody's without a network (package compile), and commands of chatd
// that read a file of rules, as their caller. Neither chatd-root nor chatd-enforce links it, nor any
// process of a session.
//
// # What it does not stop
//
// A file may allow whatever it likes: who may write it decides what chats may open.
package rulefile
