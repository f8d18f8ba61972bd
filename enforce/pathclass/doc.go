// Package pathclass finds what the file rules of a chat close for the kernel: the class of each path,
// and each place in the trees of a session that needs a mount.
//
// # Theory of operation
//
// For the kernel each path is open, read-only or closed ([Wall]); section "The walls" of specs/0003
// derives the classes. [Compile] makes a Wall of a rule file. It follows links as the session sees
// them, and [Links] keeps their earlier targets.
//
// A [Walker] walks the trees that a session sees, below all masks ([Base]). It finds each [Place]
// whose class differs from its directory's, the other names of such files, and the targets of
// closed links. Then it sorts them so that they can be mounted in that order (nest.go). A [Cache]
// remembers large trees that no session can write to.
//
// [Check] and [CheckTrees] refuse a policy with which no session could start, before one does.
// chatd-root and chatd policy check use them, with the same walk.
//
// Package masks mounts the places; package enforce checks files that are made later by the Wall.
//
// # Runs as
//
// root, in chatd-enforce on a thread in the session's mount namespace and in chatd-root; whoever
// calls chatd policy check.
//
// # What it does not stop
//
// Anything: it finds, and mounts nothing. A file that is made during a walk may be missed; package
// enforce checks its opens. Rules that [Check] accepts can still fail in one session: bounds of a
// walk are of that session's own trees, too. Package filerules defines what the rules mean.
package pathclass
