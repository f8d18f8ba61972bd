// Package idle decides which awake chats nobody uses, and puts them to sleep: one that has been
// idle for sleep_after of its profile, and the longest idle when another chat needs its place.
//
// # Theory of operation
//
// A chat is at work while a run of any kind or a file tool is under way, a client is attached to
// its terminal, a caller types into it or waits for its output, or a program runs in its session
// ([Options].Work).
// It is at work too while its processes use more CPU time than a trickle. Its input and what its
// terminal prints count as use when they happen. To look at a chat is no use.
//
// [Watch.Run] looks at all awake chats every few seconds. One at work is in use now, which is
// recorded as its used_at, so that other idleness, as of chatd reap --idle, goes by the same. One
// that is idle for longer than its profile allows is put to sleep.
//
// One that is idle for freeze_after of its profile is frozen until its next use, and goes on to be
// idle. One that an operator froze is left alone.
//
// [Watch.MakeRoom] puts the longest idle chat to sleep, of one owner or of all. It takes no chat at
// work, none that was in use within minIdle, none whose profile has keep_awake and none that an
// operator froze. If none is left it says why, and names those at work to those who may know.
//
// used_at is a time of the wall clock, which may be set. [Clock] moves it then, so that no chat is
// idle for longer than it was (adrs/0089).
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// A chat that wants to stay awake: to print or to spin a little is enough, and a program may have
// any name. max_awake and owner_shares bound what that costs others. A program that looks idle,
// such as a shell script that waits without a child, ends with the session: keep_awake is for
// those.
package idle
