// Package schedule computes when commands of chats are due, and starts them: cron expressions,
// intervals and single times ([Parse]), and a [Runner] that waits for the next of all of them.
//
// The runner keeps one heap and one timer, whatever the number of chats. It holds only the names
// and the next time of a schedule; the callbacks ([Options]) keep its command and its results. At
// most Slots runs are under way over all chats, and one of each chat; what comes due beyond that
// waits, first come, first served.
//
// # What the clock may do
//
// Times are those of the wall clock. One run catches up the times that were missed because chatd
// was down, the host slept or the clock was set forward. The other times are counted. Set back by
// at most three hours, the clock does not make a cron expression come due again for a time that it
// had. Set back by more, it was wrong before, and counts anew. An interval never waits longer than
// itself. The wall clock is looked at every 30 seconds at the latest, so that a step of it is seen.
//
// In a time zone with daylight saving a cron expression with fixed hours comes due once
// for each of its times: one that is skipped, as much later as the clocks went forward;
// one that is there twice, the first time. With * as its hour it follows the time that
// passes: every hour that there is.
//
// # What it does not stop
//
// It checks, limits and audits nothing: the code that starts runs does. It does not know whether a
// chat exists. A run that never ends holds its slot: the callback must bound it. It is exact to the
// second, and late when slots are full.
package schedule
