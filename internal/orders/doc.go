// Package orders is what chatd-root and chatd-enforce say to each other: orders and answers, the
// exchange of the enforcer's fanotify(7) groups, and the files that both mount as masks.
//
// An [Order] is one JSON object on a connection to the enforcer's [Socket]; an [Answer] comes back.
// With [Lend] the enforcer sends its two groups ([SendGroups]), and chatd-root holds them open. The
// next enforcer of the directory asks for them at [GroupsSocket] ([LentGroups]; adrs/0019).
// bubblewrap mounts the files of [MakeMasks] over denied paths before the enforcer comes, which
// recognises them and adopts those mounts.
//
// Package enforcer is chatd-root's side of it, package enforce the other.
//
// # Runs as
//
// root, in chatd-root and in chatd-enforce.
//
// # What it does not stop
//
// Anything: whoever reaches the socket gives orders. Its directory is root's alone.
package orders
