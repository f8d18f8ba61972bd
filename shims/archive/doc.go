// Package archive writes the tree of a home into one stream, and makes a tree of such a stream
// ([why]). [Pack] reads the tree, [Unpack] writes one, [Check] reads a stream as Unpack does and
// writes nothing.
//
// The stream is a tar archive (pax) in zstd, and that in age's format where recipients are named.
// tar(1) reads it: age --decrypt | zstd -d | tar -x. Each entry follows its directory, and all
// entries of a directory follow it before any other. Sparse files have the form 1.0 of GNU tar.
// Unpack accepts only what Pack writes, byte for byte, for the same entry. So it opens no path:
// each entry has one name in the directory that is open.
//
// What is kept: directories, regular files with their holes, symbolic links, FIFOs, hard links
// between them, modes, modification times, extended attributes of the user namespace. What is left
// out is counted in [Summary.Left]: sockets, and attributes over [maxRecords].
//
// # Runs as
//
// The chat, in the program chatd-archive. It reads what the chat named and wrote: root links it
// nowhere.
//
// # What it does not stop
//
// A chat can make a home that Pack refuses, by a path over 64 KiB. It says which. The depth of a tree
// has no other bound. tar(1) unpacks no path over 4,096 bytes; [Unpack] does. Pack is for a tree that
// nothing changes: a file that changes in size while it is read is an error, and other changes are
// not seen. A Pack that is killed may leave 0400 added to the mode of a file that its owner cannot
// read, or 0500 to that of a directory.
//
// Set-uid, set-gid, access control lists and file capabilities are not kept. Owners become the uid
// that unpacks. Whoever changed the stream can have made any tree in it: keep its hash elsewhere.
// A failed Unpack leaves what it made: unpack into a new directory and rename that.
//
// [why]: https://github.com/chatd/chatd/blob/main/adrs/0081-archive.md
package archive
