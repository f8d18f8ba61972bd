// Package enforcer finds, starts and asks chatd-enforce, the enforcer of file rules.
//
// # Theory of operation
//
// A [Client] is for the enforcer of one directory. [Client.Start] finds the one that answers. If
// there is none, it waits for systemd's unit or, without systemd, starts the program, which is no
// part of chatd-root's life. It goes on while chatd-root is down.
//
// An order is one connection: [Client.ApplyRules] applies rules to a session, [Client.Drop] forgets a
// session, [Client.Keeps], [Client.Layer] and [Client.Why] ask about one. A worker of the enforcer
// may end amid an order. The next worker has adopted the sessions, so that all but Drop and Why ask
// again.
//
// [Client.Follow] holds the two fanotify(7) groups of the enforcer open beside it (groups.go):
// while no process of the enforcer is left, opens wait, and Follow starts another (adrs/0019).
// [Client.FollowRefused] collects the opens that the enforcer refused, within an allowance of each
// chat, so that no chat fills the audit log and none takes another's lines. [Client.Masks] is for
// sessions that begin: bubblewrap closes some paths before the enforcer comes.
//
// Package orders is the wire, package enforce is what answers. Package policy says which session
// gets which rules, and has what was refused audited.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Anything: the enforcer does. While chatd-root is down and no process of the enforcer is left,
// later files can be opened. A process of root can answer in the enforcer's place: its directory
// admits only root, and an answer is believed.
package enforcer
