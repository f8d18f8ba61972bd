// Package shell reads commands as bash does, without running them: which paths a command
// names, and which simple commands it is made of. It is the one owner of a shell parser, and
// what links it reads text of chats and callers.
//
// [Named] and [NamedByArgv] list the paths of a command; [CheckCommand] and [CheckArgv] also check
// them with the file rules of package filerules. [Calls] and [CallsOf] list its simple commands,
// for the presets of package guard. Both make the same walk, in the order in which a shell comes to
// things: quotes, constants that the command sets itself, cd, pipelines, substitutions, functions,
// here-documents, scripts within scripts, and programs that start another, as env, timeout, xargs,
// find -exec.
//
// A text has no verdict but [chat.ErrInvalid] when it goes past a bound, of bytes, of nesting,
// of words or of steps. work.go has the bounds and what they cost.
//
// # What it does not stop
//
// Nothing by itself, and it is not a wall. It does not see names that are computed, read from a file
// or made by another program. A program may interpret a word differently from its table. The kernel
// enforces the rules, whatever is found here.
package shell
