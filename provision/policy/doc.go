// Package policy holds the policy in force: the file rules of the profiles, and the keys that a
// reload may change beside them. It puts the rules in force in sessions, and says of a refusal
// which rule caused it.
//
// # Theory of operation
//
// An [InForce] has the rules and keys of now, each replaced as a whole. A reload takes two steps,
// so that an error changes nothing: [InForce.Check] refuses what no enforcer could enforce,
// [InForce.Set] puts the rest in force for what begins from then on. Sessions that go on get the
// new rules one by one, by [InForce.Apply].
//
// The rules come into a session in three ways, none of which depends on another:
//
//	Landlock      grants nothing at paths that are closed as a whole (package shims)
//	bubblewrap    masks those of them that exist when the session begins: [InForce.Masks]
//	enforcer      mounts masks and answers fanotify(7): [InForce.Barrier], [InForce.Apply]
//
// [InForce.Began] and [InForce.Drop] tell the life of a session. Between them an enforcer that ends
// is started again if the chat's rules need one, and its refusals go to the audit log.
//
// Runs and file tools are checked against the rules before they start ([InForce.CheckRun],
// [InForce.Admit]). A file tool has the rules itself. To a program the kernel answers EACCES, EPERM or
// EROFS and names no rule; mostly there is none, but a mode, an owner or a mount. [InForce.RuleBehind]
// and [InForce.Explain] find out whether it was a rule.
// [InForce.Explain] also answers about a destination, by the profile's egress alone: the name is
// compared with the list and not looked up.
//
// [Rules] are a profile's, compiled for a chat, and answer: which rule decides about a path that a
// run, a file tool or an operator names; which paths are closed as a whole; which mechanisms
// enforce a denial. What was compiled is cached by rules in force together, so that nothing compiled
// from old ones is asked after a reload.
//
// Package filerules has the language, package enforce makes the kernel enforce it, and package
// enforcer has the orders to chatd-enforce. The caller knows the chats and their sessions, ends a
// session whose rules cannot be applied, and writes the audit log.
//
// # Runs as
//
// root, in chatd-root. Paths are text here, and where links lead is what the chat's side reported.
// [CheckPlaces], [InForce.Count] and [InForce.Check] open directories of the host's trees that
// sessions share, and [InForce.Unwatched] those that it is given.
//
// # What it does not stop
//
// Processes of a session between the end of its rules and the end of the session: the caller ends
// it. A denial by the kernel whose rule the enforcer cannot find stays without one.
//
// An answer stops nothing by itself: the session's mounts and the enforcer make the kernel refuse an
// open. A chat that forges the targets of its own links gets an answer about other names, and the
// kernel still checks the file that it opens.
package policy
