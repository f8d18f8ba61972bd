// Package layers holds the results of the last probe of this host's walls, layer by layer, and
// derives from them which layers are missing or unknown, and whether chats may begin.
//
// # Theory of operation
//
// The mechanisms try their walls, and package hostprobe runs the tries: some outside of a session,
// the rest in a session of each kind of network. [Merge] makes one result of each layer from
// theirs, the worst. A try that fails makes its layer off or, if it failed for lack of room or
// time, unknown ([Failed]). A host whose disk is full is not a host without the wall.
//
// A [Set] holds the results of the last probe. It knows which layers config excuses and which a
// test leaves out, and refuses all starts until one probe has found every required layer in force.
//
// # Runs as
//
// root, in chatd-root. [SysctlFindings] and [Found.AddProc] read the host's /proc; the rest acts
// on nothing.
//
// # What it does not stop
//
// Anything: the walls do. A wall that falls after the last probe is in force here until the next.
// A try shows that one attack fails, not that every one does.
package layers
