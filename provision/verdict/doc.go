// Package verdict answers what file rules, and the keys of a profile beside them, say about a
// chat: which rule decides about a path that a run, a file tool or an operator names; which paths
// are closed as a whole; which mechanisms enforce a denial. It compiles the rules of a profile for
// each chat, and caches what it compiled.
//
// Rules and keys are values in force together: a reload makes new ones, and nothing that was
// compiled from the old ones is asked again. Package filerules has the language, package enforce
// makes the kernel enforce it; package policy knows which rules are in force, and asks here.
//
// # Runs as
//
// root, in chatd-root. Paths are text here, and where links lead is what the chat's side reported.
// Only [CheckPlaces] and [CheckAllPlaces] open directories: of the host's trees that sessions
// share.
//
// # What it does not stop
//
// Anything: a verdict is an answer. The session's mounts and the enforcer make the kernel refuse
// an open. A chat that forges the targets of its own links gets a verdict about other names, and
// the kernel still checks the file that it opens.
package verdict
