// Package archiver lets chatd-archive read and write the home of a sleeping chat, as the chat and
// behind its walls.
//
// # Theory of operation
//
// [Packing] writes the parts of an archive and reads each again; [Unpacking] reads them. What they
// do is tasks. A [Task] is one command of chatd-archive, which [Task.Start] makes the first and
// only process of a one-shot session. Root's ends are three pipes: its input, its output, and the lines of its
// report ([Process.Wait]).
//
// # Runs as
//
// root, in chatd-root. It copies bytes to and from the process and interprets only the report.
//
// # What it does not stop
//
// A process of the chat's uid could answer anything: what it says of a home is the home's own word.
// No code of the chat runs in a one-shot session. The caller compares hashes where it matters.
package archiver
