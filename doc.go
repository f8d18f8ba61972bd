// Package chatd is the map of the repository; the code is in the folders.
//
//	cmd/chatd         the daemon and its command line; one file a command
//	cmd/chatd-shim    runs as the chat: confines, refuses, probes
//	chat              the words; every other package speaks in them
//	provision         the life of a chat: one table of steps
//	cgroup            memory, pids and CPU; starts and ends processes
//	netpolicy         where a chat's packets may go
//	access            file rules: read, judged and explained; nothing enforces them yet
//	files             the five file tools; not wired to a session yet
//	landlock          file access by Landlock
//	tmux              the terminal
//	minder            keeps a run of the background when chatd is not there
//	shims             the chat's side of the wall: view, confine, refused commands
//	state             records and the audit log
//	api               HTTP over a unix socket: server and client
//	examples/bridge   the demonstration
//	specs, adrs       what is promised, and why it is as it is
//	deploy, test      installing, and testing as root and in a machine
//
// Which package may import which is a table in layout_test.go. Mechanisms never
// import each other: only provision and shims put them together.
//
// # What it does not stop
//
// See SECURITY.md, and the heading of this name in each package.
package chatd
