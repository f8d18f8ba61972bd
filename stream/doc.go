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
// Its caller: the front, root, a supervisor as nobody, or a chat (frames, in chatd-shim).
//
// # What it does not stop
//
// The bytes are those of a chat and may be anything; [Capture].Text makes UTF-8 of them and nothing
// safer. A [File] says what its writer says: whoever may write to it may lie about its length.
package stream
