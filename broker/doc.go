// Package broker carries calls from the front, which has no privilege, to chatd-root, which has.
//
// The front holds one end of a control socket. For each call it makes a socket pair, passes
// one end over the control socket (SCM_RIGHTS of unix(7)), and sends the request on the other.
// So a call has a queue of its own, which a slow reader fills alone, and ends when either side
// closes it: a request is given up by shutdown(2), and everything is when the front ends.
// All sockets are SOCK_SEQPACKET. The first byte of a packet is its [kind].
//
//	front → root   request…  requestEnd          then  (end | broken) or toolSays…
//	root → front   streams, stdin, tool, toolReply, toolStop, frame …  answer… (answerEnd | failed)
//
// A request is JSON with no unknown member: the verb, the caller, the chat and the arguments of one
// method of [Root]. [Client] satisfies [Root] in the front; [Server] calls another in chatd-root.
// Each method is drawn once, as a verb, from which both ends are made: the request of [Client], and
// what [Server] does about it. The file of its topic has its place in the interface beside that.
// What a run prints or reads is in no packet: streams brings the descriptors to read it from
// ([Streams]), stdin the one to write to, of which the front says (end | broken) that it is done.
// Neither is what a file tool says or has to write: tool brings its descriptors ([FileTools]), the
// front asks about names (toolSays, toolReply), and reports how it ended (toolSays). Errors keep
// their kind, their words, and what the API shows of a denial.
//
// # Runs as
//
// [Client]: the front, as user chatd. [Server]: root, in chatd-root.
//
// # What it does not stop
//
// The front names the caller: chatd-root does not see who connected. A front that is taken over
// may therefore do what an operator may do to chats, and audit it under another's name. It
// cannot name anything but chats, and a request is checked here again as if nobody had.
// Of a file tool it may report what it likes, but for a denial by the rules, and pass over what it
// was replied; the tool and the path are those that chatd-root sent to the tool.
package broker
