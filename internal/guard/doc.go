// Package guard says which commands are refused before they run, and why: a shell
// command that a run has, and the argument list of a program that has a shim.
//
// [New] makes a [Guard] of a profile's keys. [Guard.Command] reads a command as a
// shell does (shell.Calls) and checks each simple command of it, after quotes are
// taken away and constants are put in: those of pipelines and substitutions, of
// sh -c, eval, here-documents to shells, and behind env, timeout, xargs, find -exec
// and their like. [Guard.Argv] checks a program that no shell starts.
//
// A simple command is first held against the custom allow patterns. One that matches from end to
// end frees that command, and no other. Then come the custom deny patterns, which are searched, and
// the rules of the preset, which look at words and not at text. A commit message is not a command.
// Last, a guard that is restricted to the workspace looks at every path that is found.
//
// A pattern is matched with the simple command in one line: its words, separated by one blank, in
// single quotes if they contain blanks, quotes or line ends, and * in place of unknown parts.
//
// # What it does not stop
//
// Anything that means to. It reads text and does not run it. A program that is written to a file
// and started, an expression of python or awk, a name that is read or computed, all pass. It is
// advice for well-meaning agents, which are told what is wrong and what to do instead. The walls
// are the kernel's, and hold without it: test/roottest shows that for every effect of its corpus.
package guard
