// Package leftovers finds and removes what a uid has on the host outside its chat's own trees.
//
// # Theory of operation
//
// When a chat's session, cgroup and account are taken down, its uid may still have processes,
// System V objects, keys, and files that daemons keep for users. [Remove] takes those away, for
// they would act for, or be open to, whoever has the uid or the name next. [Search] only counts
// files that may be somebody's work, and names the first. Processes end first: they could make the
// rest again.
//
// # Runs as
//
// root, in chatd-root; keyrings are cleared on a thread of the uid, which alone may do it.
//
// # What it does not stop
//
// Files anywhere else on the host: it looks where a chat, or an operator who ran a command as the
// chat, can have left some. System V objects in other IPC namespaces, which end with those. A uid
// that something new runs as while [Remove] works.
package leftovers
