// Package filerules holds the file rules of a chat: it reads them, says whether a
// path may be read, written, edited or named in a shell command, and says which
// rule on which line decided. The language is that of Clawdbot's path rules; what
// they leave open is settled in specs/0003-file-rules.md.
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
// [Load] reads such a file, in YAML or JSON5, and reports every fault in it at
// once. A [Policy] names homes by ~; [Policy.For] makes it a [Ruleset] of one
// agent, home and working directory, in which patterns are compiled and absolute.
// [Ruleset.Check] is asked for a path, [Ruleset.CheckNamed] for those that package shell
// finds in a command, and [Ruleset.Rules] lists everything for whoever enforces it in another way.
//
// Two names of a path are judged: the folded one (absolute, without . and ..), and
// the one that symbolic links lead to. A deny of either denies.
//
// # Patterns
//
//	~/.ssh/**     a directory and everything under it; ~ is the home
//	/srv/x        without wildcard: the path and everything under it
//	*.pem  .env   without slash: the last segment of a path
//	src/**/*.key  with slash, not absolute: from the working directory
//	**/secrets/** with ** in front: anywhere
//	/\.env$/      between slashes: a regular expression (RE2), searched in the path
//
// ? is one character and * any number of them within a segment, ** as a whole
// segment is any number of segments, [ab-c] and [!a] are classes, {a,b} is written
// out before anything else, \ takes the next character as it is. Leading dots are
// not special. Case matters.
//
// # What it does not stop
//
// Nothing by itself: it gives answers, the file tools, the shims and the kernel
// keep to them. What a name resolves to is looked up before it is used, so a chat
// that swaps a link in between gets another file judged than opened: only an
// enforcer that judges what is already open is a wall. A hard link has a name of
// its own. Which paths a command touches is for package shell to guess.
package filerules
