// Package files is the five file tools of an agent: read_file, write_file,
// edit_file, append_file and list_dir, with the arguments, results and messages
// that PicoClaw's have. They run as the chat's uid, inside its confinement, and
// hold whether its session is there or not.
//
// # Theory of operation
//
// [Tools] is opened on the workspace (the home) and on further roots (the
// chat's /tmp). [Tools.Serve] reads one request, does it and writes the answer.
// chatd-root has the other end first, and sends the request ([Send]); then the front
// speaks with the tool ([Speak]). Content passes as chunks in either
// direction and is never held whole: a file of any size costs a few buffers.
//
// The rules are judged at that other end. The tools ask it about each name before they open or make
// anything, and are told yes or no: they compile no rules, and a denial is a fact of chatd's own,
// which knows which rule on which line it was. Content is asked for too, once it may come.
//
// A path is folded (made absolute from the workspace, "." and ".." taken out by
// their letters, as PicoClaw does), and judged under that name before anything
// is touched. Then it is walked from the root's descriptor, a component at a
// time, each opened without following; links are read and followed by this
// package. That is how [os.Root] works, and the tests compare the two. os.Root
// itself will not do here: it refuses an absolute link that stays inside, knows
// one root only, and does not tell the physical name, which must be judged too.
// What was opened is asked for its name (/proc/self/fd) and must be what was
// judged, so that a name which is swapped in between is walked again.
//
// Only regular files are read and written: the type is asked before the open,
// the open does not wait (O_NONBLOCK), and the type is asked again of what was
// opened.
//
// write_file and edit_file write a file beside the target (.tmp-PID-NANOSECONDS,
// mode 0600), sync it, exchange it with the target and sync the directory: after a
// crash there is the old content or the new. The temporary file is locked while
// somebody writes it. One without a lock belongs to nobody any more, and the
// next write in that directory takes it away. Whether such a name may be there is asked
// first: the kernel would make the file and then refuse to open it. append_file is one
// write(2) with O_APPEND; more than [MaxPiece] goes in several, below a lock (flock(2))
// that every append and every edit takes.
//
// Whatever is refused is a [Denial]: operation, path, rule and where the rule
// stands.
//
// # What it does not stop
//
// The chat: whoever may run commands as the chat may do all this without these
// tools, and may stop or end the process that runs them; to speak in its place it
// would have to trace it, which Landlock refuses between runs (TestToolsAttacked) and
// nothing else does. So an answer is the chat's word, also the name that it asks
// about, and the walls are the kernel's. [Speak] bounds what it believes.
//
// Of hard links only this is refused: a file that somebody else owns, by a name
// that the chat could have made. The chat's own files may have many names. A
// write gives the name a new file and leaves the other names with the old one; an
// append is seen by all of them.
//
// A program that holds no lock may write while edit_file copies; a change of size or time is
// noticed and reported, one that keeps both is not. On a file system that cannot exchange two names
// (RENAME_EXCHANGE), a link that takes the target's place just before the rename is replaced.
// Content of more than [MaxPiece] may be cut short by a crash while append_file adds it. A new file
// belongs to the chat and has the old one's permission bits, not its owner, its set-id bits, its
// ACL or its extended attributes. A file that is a mount point, as one that a rule opens within a
// closed directory, cannot be replaced: it is written over, and a crash amid that leaves a mixture
// of old and new.
package files
