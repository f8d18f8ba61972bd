// Package scheduler takes the times at which schedules come due, and records how their runs ended.
//
// # Theory of operation
//
// The front has the clock (package schedule) and reports that a time has come. [Schedules.Begin]
// takes the time, once, and records that durably before the run begins. So a crash may
// cost a run, and never causes two runs for one time. A record then goes through these
// states:
//
//	RunningSince   the time is taken; its run begins or is under way
//	Last           the result of the last time taken: that of its run, or the reason for none
//
// A time ends with its run ([Schedules.Watch], [Schedules.Await]), with an error of its start, or
// with a crash that left no run of it ([Schedules.Adopt]). Each of these writes a result, and only
// for the last time taken, so that two of them write one result. A start that was stopped before a
// process began ([NotBegun]) returns its time: the next chatd takes it.
//
// A run of [background.Runs] belongs to a time by its schedule and by the moment at which the
// time was taken. By these the next chatd finds runs that outlive chatd. The run of the last
// result is kept; the run of the result before it is dropped.
//
// The caller decides who may have a schedule, checks its command, writes the audit log and starts
// the run.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A front can name times that no schedule has: every time but the last one is taken as new. The
// output in a result is the chat's own; a client escapes it before a terminal shows it.
package scheduler
