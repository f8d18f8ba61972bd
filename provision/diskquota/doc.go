// Package diskquota bounds what each uid has on the file systems of chats, and counts it.
//
// # Theory of operation
//
// The kernel counts the bytes and inodes of each uid where a file system has user quotas (ext4 with
// the feature quota, XFS mounted with usrquota), and refuses more than a hard limit with EDQUOT.
// [Disks] speaks to it by quotactl_fd(2) for each file system of the given directories. A limit
// holds for each file system alone: a chat whose home and /tmp are on different ones may have as
// much on each. ext4 with the feature counts and does not enforce: [Disks.Enable] makes it.
// [Disks.Try] writes over a limit, as a uid.
//
// Only quotas of users: the owner of a file may change its project, and its group if it is in two.
//
// Where a file system enforces none, or none that may be set here, [Watch] counts what lies in the
// directories of a chat, with [Walk], and reports one that has far more than its limit. It walks
// two chats at a time, a small one and a large one, at a tenth of one CPU. Everywhere it reports at
// 80 and at 100 percent.
//
// # Runs as
//
// root, in chatd-root. A walk opens directories of the chat, follows no link, crosses into no other
// file system and holds two descriptors for each of 64 levels.
//
// # What it does not stop
//
// With a quota: files of the uid on other file systems than those of the directories; what root
// makes for the chat and leaves to root, such as a terminal's log; all chats together, which may
// have more than the file system.
//
// Without: anything, until the next count. Open files without a name, files in trees shared with
// others, directories below level 64, and files renamed in the middle of a walk are not counted.
package diskquota
