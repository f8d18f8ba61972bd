// Package runs handles commands, schedules and file tools in the front before they reach chatd-root.
// [Open] makes a [Chats] of a [verbs.Root].
//
// It parses each command: the profile's guard refuses some, and in the others it finds the paths
// for chatd-root's file rules. It has the clock of schedules: cron expressions and time zones are
// parsed on this side. Calls of Root check, begin and await a run that is due. Each leaves a record
// from which the next process continues: a clock that ends loses no time and no result.
//
// It also reads the output of runs ([Streams]), from descriptors that chatd-root passes. It keeps
// head and tail, within a bound on all runs, as texts and frames. It writes callers' input to runs
// in the same way.
//
// It speaks with the file tools of chats ([Tools]). chatd-root starts a tool in the chat, sends its
// request, and passes the other ends of its two pipes. This package reads the tool's messages and
// copies content from and to it. To share a file it copies the content from one chat's tool to the
// other's, counts it and hashes it.
//
// # Runs as
//
// The front, as user chatd.
//
// # What it does not stop
//
// The check of commands is advice for well-meaning agents, as package guard has it, and limits
// nothing. chatd-root cannot know whether a command was checked, or whether a schedule is due. A
// compromised front skips both checks. Text that is typed into a terminal is not checked.
// It may write other content to a file tool and report another outcome. It cannot choose another
// tool, path or rule than chatd-root sends to the tool.
package runs
