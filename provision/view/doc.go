// Package view decides what a session sees of the host: from a chat, its profile and the facts of
// the host it makes the [plan.View] that bubblewrap's arguments are made of, and tells it to
// operators as a [chat.Plan].
//
// # Theory of operation
//
// Everything in a session sees what [Planner.Of] says: its home and temporary directories, the
// PATH of its profile, its fifos, its environment. Only what begins a session looks at the host:
// [Planner.Next] adds what the host's /etc says now, and the paths that the profile exposes, as
// package exposure finds them now. A session that runs keeps the paths that it began with, whatever
// config and host say later; the caller remembers those.
//
// A path that is exposed in the home needs a directory or a file to mount on, which
// [Planner.MakeMountPoints] makes as the chat. The file tools may use the same paths as the
// session: [FileTool].
//
// Not here: what file rules deny. The caller gives the denied paths in [Chat], and adds the mounts
// that mask them.
//
// # Runs as
//
// root, in chatd-root, which makes mount points on a thread of the chat's uid; and any user, for
// `policy check` and `serve --check`, as far as that may look.
//
// # What it does not stop
//
// Anything: bubblewrap makes the mounts, and Landlock the grants, of what is decided here. A host
// that changes after the look; see package exposure. A chat may remove a mount point of its home
// before bubblewrap mounts on it: then its session does not start, or bubblewrap makes one anew.
package view
