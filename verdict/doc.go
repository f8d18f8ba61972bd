// Package verdict answers what file rules, and the keys of a profile beside them, say about a
// chat: which rule decides about a path that a run, a file tool or an operator names; which paths
// are closed as a whole; which mechanisms enforce a denial. It compiles the rules of a profile for
// each chat, and caches what it compiled.
//
// Rules and keys are values in force together: a reload makes new ones, and nothing that was
// compiled from the old ones is asked again. Package filerules has the language, package enforce
// makes the kernel enforce it; package provision knows the chats, asks here, and audits.
//
// # Runs as
//
// root, in chatd-root. It opens nothing: paths are text here, and where links lead is what the
// chat's side reported.
//
// # What it does not stop
//
// Anything: a verdict is an answer. What the kernel refuses, the session's mounts and the enforcer
// refuse. A chat that lies about where its own links lead gets a verdict about other names, and
// the kernel still judges the file that it opens.
package verdict
