// Package chatd is the map of the repository; the code is in the folders.
//
//	cmd/chatd         the command line, one file a command, and the front of the daemon
//	cmd/chatd-root    the part of the daemon that has the privilege
//	cmd/chatd-shim    runs as the chat: confines, refuses, probes
//	cmd/chatd-enforce keeps file rules beside the daemon, as root
//	cmd/chatd-archive writes a home into one stream, and makes one of it, as the chat
//	cmd/chatd-egress  carries the connections of chats, without a privilege
//	front             the unprivileged process that answers callers
//	chat              the words; every other package speaks in them
//	provision         the life of a chat: one table of steps
//	session           the processes of a session: starts them, enters them
//	hostprobe         tries which walls this host enforces
//	layers            what was found when the walls were tried, and what follows
//	exposure          what a profile opens of the host
//	account           Linux users of chats: userdb records, or useradd
//	homedir           makes homes, and acts inside them as the chat
//	diskquota         bounds and counts what a uid has on disk
//	leftovers         what a uid has on the host outside its chat's trees
//	scan              looks for files of reaped chats on every local file system
//	trees             makes, replaces and removes directory trees, as root
//	cgroup            memory, pids and CPU; starts and ends processes
//	cgroupfs          makes, reads, kills and removes cgroups by their directories
//	systemd           starts sessions as units, and hands them descriptors
//	netpolicy         where a chat's packets may go
//	netns             the network namespace of a session, and the way out of it
//	gateway           finds, starts and tells chatd-egress
//	traffic           keeps what became of connections, and which refusals are audited
//	uplink            what chatd-root and chatd-egress say to each other
//	egress            carries the connections of chats: the program chatd-egress
//	secret            what chats may use and not read: its words
//	authority         the certificate authority that chats with secrets trust
//	resolver          answers the DNS queries of chats, by the names they may know
//	scrub             takes texts out of what servers send
//	landlock          file access by Landlock
//	unshare           overlays and masks for what sessions share
//	sockets           bounds what the kernel holds for a chat's sockets
//	view              what a session sees of the host, and how operators are told
//	sys               what several packages ask of the kernel
//	tmux              the terminal
//	shims             the chat's side of the wall: view, confine, probe
//	wrapper           the chat's side of rm, curl, sudo: checks their arguments
//	filerules         file rules: loads, matches and explains them
//	shell             reads commands: their paths, and the programs they start
//	verdict           what file rules say of a path in a chat
//	enforce           keeps file rules in sessions: the program chatd-enforce
//	walls             finds what file rules close in the trees of a session
//	masks             mounts masks in a session, over what is closed
//	orders            what chatd-root and chatd-enforce say to each other
//	enforcer          finds, starts and asks chatd-enforce
//	policy            the rules in force: in sessions, after a reload, behind a refusal
//	files             the five file tools
//	archive           a home as one stream: the program chatd-archive
//	archives          keeps archives of chats: files, and manifests that only this install writes
//	archiver          lets chatd-archive read and write a home, as the chat
//	fileops           in the front: speaks with the file tools of chats
//	guard             commands that are refused before they run: advice
//	background        runs under way, and the files and ends of background runs
//	due               takes the times of schedules, and records their results
//	idle              which awake chats nobody uses, and puts them to sleep
//	supervise         keeps a background run while chatd is not there
//	termlog           passes on what a chat's terminal prints
//	runs              in the front: reads commands, has the clock of schedules
//	schedule          when scheduled runs come due
//	quota             how much one owner may have of what all owners share
//	shares            counts what owners hold of that, and refuses more
//	termsafe          what an operator's terminal may be sent
//	printer           writes the answers of the command line
//	console           types into a chat's terminal, and keeps what it prints
//	filecall          does the calls of the file tools: requests, streams, ends
//	ring              the end of what a run or a terminal printed
//	stream            what is kept of a run's output, and a terminal's input
//	state             records, uids and the audit log
//	config            reads chatd's config
//	broker            carries calls from the front to chatd-root
//	listen            makes the API's socket
//	journal           the form of a log's lines
//	api               HTTP over a unix socket: server and client
//	mcp               a chat as tools of an agent
//	examples/bridge   the demonstration
//	specs, adrs       what is promised, and why it is as it is
//	deploy            installing on a host
//	test/roottest     chat A against chat B, as root, in namespaces
//	test/npmtest      programs of npm's registry, for tests
//	test/vagrant      the same on Debian machines with systemd
//
// Which package may import which is a table in layout_test.go. Mechanisms never
// import each other, but for cgroup, which asks systemd and cgroupfs: only provision,
// session, view, hostprobe and shims put them together.
//
// # What it does not stop
//
// See SECURITY.md, and the heading of this name in each package.
package chatd
