// Package filerules decides by the file rules of a chat whether a path may be read, written,
// edited or named in a shell command, and names the rule and line that decided.
//
// Package rulefile reads a file of rules and makes a [Policy], which goes from process to process
// in a compiled form ([Policy.Compiled], [ReadCompiled]). A policy names homes by ~; [Policy.For]
// compiles it to a [Ruleset] of one agent, home and working directory, with absolute patterns.
// [Ruleset.Check] checks a path, [Ruleset.CheckNamed] the paths that package shell finds in a
// command, and [Ruleset.Rules] lists all rules for other enforcers.
//
// Two names of a path are checked: the folded one (absolute, without . and ..), and
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
// Nothing by itself: it decides; the file tools, the shims and the kernel enforce. Links are
// resolved before the name is used, so a chat that swaps a link in between has one file checked and
// another opened. Only an enforcer that checks an open file is a wall. A hard link has a name of
// its own. Package shell can only guess which paths a command uses.
package filerules
