// Package files is the five file tools of an agent: read_file, write_file, edit_file, append_file
// and list_dir, with the arguments, results and messages of PicoClaw's. They run as the chat's uid, in
// a view of their own, also while the chat is asleep.
//
// # Theory of operation
//
// [Tools] is opened on the workspace (the home) and on further roots (the chat's /tmp).
// [Tools.Serve] reads one request, executes it and writes the answer. chatd-root holds the other
// end first, and sends the request ([filewire.Send]); then the front speaks with the tool
// ([filewire.Speak]). Content passes as chunks in either direction and is never held whole: a file of
// any size costs a few buffers.
//
// The tools compile the chat's file rules ([filewire.Rules]) and check each name for the operation, and for
// nothing else, before they open or create anything. After these checks they ask for the content.
//
// A path is folded (made absolute from the workspace, "." and ".." removed lexically, as PicoClaw
// does), and checked under that name before any access. Then it is walked from the root's
// descriptor, a component at a time, each opened without following; links are read and followed by
// this package. That is how [os.Root] works, and the tests compare the two. os.Root itself is
// unsuitable. It refuses an absolute link that stays inside, has only one root, and does not report
// the physical name, which must be checked too. The name of the opened file (/proc/self/fd) must be
// the checked one; a name that was swapped in between is walked again.
//
// Only regular files are read and written. The type is checked before the open, the open does not
// block (O_NONBLOCK), and the type of the open file is checked again.
//
// write_file and edit_file write a file beside the target (.tmp-PID-NANOSECONDS, mode 0600), sync
// it, exchange it with the target and sync the directory. After a crash the file has the old
// content or the new. The temporary file is locked while it is written. One without a lock is
// stale, and the next write in that directory removes it. append_file is one
// write(2) with O_APPEND; more than [MaxPiece] takes several, under a lock (flock(2)) that every
// append and every edit takes.
//
// Every refusal is a [filewire.Denial]: operation, path, rule and the rule's place.
//
// # What it does not stop
//
// The chat: its processes may change names and files meanwhile, and hold locks. The rules are about
// names: a file that got another one is judged by that. An edit tells whether a text is in a file, and
// how often, also where the rules deny reading. [filewire.Speak] bounds what it accepts.
//
// Of hard links the tools refuse only another owner's file under a name that the chat could have
// created. The chat's own files may have many names. A write gives its name a new file and leaves
// the other names with the old one; an append shows under all of them.
//
// A program that holds no lock may write while edit_file copies. A change of size or time is
// noticed and reported, one that keeps both is not. On a file system that cannot exchange two names
// (RENAME_EXCHANGE), a link that takes the target's place just before the rename is replaced.
// Content of more than [MaxPiece] may be cut short by a crash while append_file adds it. A new file
// belongs to the chat and has the old one's permission bits, not its owner, its set-id bits, its
// ACL or its extended attributes. A file that is a mount point, as an exposed one, cannot be
// replaced. It is written over, and a crash amid that leaves a mixture
// of old and new.
package files
