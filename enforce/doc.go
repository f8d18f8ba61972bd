// Package enforce makes the kernel keep the file rules of a session: it is the program
// chatd-enforce, one for a host, and the client that asks it.
//
// # Theory of operation
//
// The rules of a chat are those of package filerules. For the kernel a path is open,
// read-only or closed (wall.go); specs/0003, "The walls", says what makes it so.
//
// Before any code of the chat runs, and again whenever the rules change, the worker
// looks through everything that the session sees (walk_linux.go) and puts a mount over
// each file and directory that is closed or read-only (mount_linux.go): an empty file
// without a mode, an empty directory without a mode, or the thing itself, read-only. What
// is there and wanted stays; what is new comes before what is old goes, so that a place
// that is denied before and after is at no moment without a mount (lay_linux.go). It
// does so from outside, on a thread that joined the session's mount namespace; the chat
// has no capability there and cannot take a mount away, nor move what one is on.
//
// For what comes later it has two groups of fanotify(7) (watch_linux.go). One asks it
// before anything on the session's mounts is opened; the other tells it what was made
// and moved, so that a file which had a denied name for a moment stays denied under
// every other. What it learns so it also covers by a mount.
//
// The program is two processes. The holder has the groups and the socket and does
// nothing; the worker does the rest and is started again when it ends. While no worker
// reads, opens wait; one about which it was being asked when it ended is refused. Neither is below chatd: chatd may end and come back.
//
// # What it does not stop
//
// A descriptor that was open before a rule came keeps what it had; who stands in a
// directory then cannot open there what the rule denies, but can remove, move or truncate
// it by name. Names, sizes, modes and times are not hidden: stat(2) and listing the
// directory around it show them. A
// pattern through a link of the chat's is about all that the link led to since the session
// began, of which up to 64 directories may come while it is up; what comes then is denied
// milliseconds later, and more from the next session on. A
// file that was made later is asked about when it is opened: it can be removed, moved
// or truncated by path (truncate(2)) as far as its modes allow, until a mount covers it,
// which takes milliseconds. If root ends both processes of the keeper at once, opens of
// files made later pass until chatd notices and ends the sessions; what has a mount
// stays. Package filerules says what rules mean, and who may read a file through another
// program outside the session is not asked.
package enforce
