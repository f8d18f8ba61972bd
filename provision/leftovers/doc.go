// Package leftovers finds and removes the objects of a uid on the host outside its chat's trees.
//
// # Theory of operation
//
// When a chat's session, cgroup and account are taken down, its uid may still have processes,
// System V objects, keys, and files that daemons keep for users. [Remove] removes those, because
// they would act for, or be open to, the next user of the uid or the name. [Search] only reports
// files, which may be someone's work. Processes end first: they could make the rest again.
//
// [Search] knows where a chat can have left files that other chats can reach: in exposed
// directories. `chatd verify` looks everywhere else: see package scan.
//
// # Runs as
//
// root, in chatd-root; keyrings are cleared on a thread of the uid, which alone may do it.
//
// # What it does not stop
//
// Files outside the directories of Search. A journald that writes a journal of the uid anew, until
// the next reap. System V objects in other IPC namespaces, which end with those. A process that
// starts with the uid while [Remove] works.
package leftovers
