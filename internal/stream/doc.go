// Package stream has what both sides of a run's streams need: chatd-root and supervisors, which
// make them, and the front, which reads them.
//
// [Capture] stores the head and the tail of a stream, and [Room] bounds what all of them store.
// [File] is a stream in a file of bounded size, as the supervisor of a background run writes it.
// [InputFrames] is what a run with a terminal reads. All readers of a run wait [DrainTime] for its
// end.
//
// # Runs as
//
// Its caller: the front, root, a supervisor with its own uid, or a chat (frames, in chatd-shim).
//
// # What it does not stop
//
// A chat chooses the bytes; [Capture].Text makes them valid UTF-8, which is not safe for a
// terminal. The writer of a [File] can forge its length.
package stream
