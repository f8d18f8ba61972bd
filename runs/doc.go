// Package runs is what the front does with commands and schedules before chatd-root hears of
// them. [Open] makes a [Chats] of a [broker.Root].
//
// It reads each command: the guard of the profile refuses some, and of the others it finds the
// paths that they name, for the file rules that chatd-root has. It has the clock of schedules:
// what reads a cron expression or knows a time zone is on this side. A time that has come is
// judged, begun and awaited by calls of Root. Each leaves a record from which the next process
// goes on: a clock that ends loses no time and no result.
//
// And it reads what runs print ([Streams]), from descriptors that chatd-root gives away: it keeps
// head and tail, within a bound on all runs, and makes texts and frames of them. To a run's
// standard input it writes what callers send, in the same way. File tools are package fileops.
//
// # Runs as
//
// The front, as user chatd.
//
// # What it does not stop
//
// The check of commands is advice for well-meaning agents, as package guard has it, and limits
// nothing: chatd-root cannot know whether a command was read, or whether a time has come. A front
// that is taken over lets both pass. Text that is typed into a terminal is not read.
package runs
