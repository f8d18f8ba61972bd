// Package archives keeps archives of chats in a directory: what chatd-archive wrote, with a
// manifest ([why]).
//
// # Theory of operation
//
// An archive is three files of one name: NAME.home is the home, NAME.chat the chat's record,
// schedules and log, both as chatd-archive writes them, and NAME.json the [Manifest]. The manifest
// has the hashes of the two and a keyed hash of itself (HMAC-SHA256); the key is derived of the
// install key. It is written last, by rename(2): an archive without a manifest is none, and the
// next [Store.Tidy] removes its files.
//
// A [Draft] is an archive that is being written. Where the operator has a command for archives, it
// gets the files on its standard input, and the manifest alone stays.
//
// chatd-archive reads and writes the home of a sleeping chat, as the chat and behind its walls.
// [Packing] writes the parts of an archive and reads each again; [Unpacking] reads them. What they
// do is tasks. A [Task] is one command of chatd-archive, which [Task.Start] makes the first and
// only process of a one-shot session. Root's ends are three pipes: its input, its output, and the
// lines of its report ([Process.Wait]).
//
// # Runs as
//
// root, in chatd-root. It copies and hashes bytes of chats, and interprets only the report of
// chatd-archive. The operator's command runs as the user that the config names.
//
// # What it does not stop
//
// Root, which can read the archives and the install key. A manifest is in clear: it has the owner,
// the external id and the labels. An archive may be removed, and older ones of its chat remain
// valid. The operator's command may do anything with the files that it gets.
//
// A process of the chat's uid could answer anything: what it says of a home is the home's own word.
// No code of the chat runs in a one-shot session. [Packing] and [Unpacking] compare hashes where it
// matters.
//
// [why]: https://github.com/chatd/chatd/blob/main/adrs/0091-archives.md
package archives
