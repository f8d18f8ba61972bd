// Package broker carries calls from the unprivileged front to the privileged chatd-root.
//
// The front holds one end of a control socket. For each call it makes a socket pair, passes one end
// over the control socket (SCM_RIGHTS of unix(7)), and sends the request on the other. So each call
// has a queue of its own, and a slow reader fills no other. A call ends when either side closes it;
// shutdown(2) cancels a request, and the end of the front cancels all. All sockets are
// SOCK_SEQPACKET. The first byte of a packet is its [kind].
//
//	front → root   request…  requestEnd          then  (end | broken) or toolSays…
//	root → front   streams, stdin, tool, toolStop, frame …  answer… (answerEnd | failed)
//
// A request is JSON with no unknown member: the verb, the caller, the chat and the arguments of one
// method of [verbs.Root]. [Client] satisfies it in the front; [Server] calls another in chatd-root.
// Most verbs are rows of the table of package verbs, which define both ends. The others are what the
// front alone asks, or with other arguments than its callers: each is defined here once for both ends.
// A run's output and input are in no packet. streams passes the descriptors to read
// ([verbs.Streams]), stdin the one to write, and the front reports (end | broken) when it has
// finished. Nor are a file tool's answer and content. tool passes its descriptors
// ([verbs.FileTools]), and the front reports how the tool ended (toolSays). Errors keep their kind,
// their words, and what the API shows of a denial.
//
// # Runs as
//
// [Client]: the front, as user chatd. [Server]: root, in chatd-root.
//
// # What it does not stop
//
// The front names the caller: chatd-root does not see the peer. A compromised front may therefore
// do to chats what an operator may do, audited under any name. It can name only chats, and
// chatd-root checks each request again. It may report any result of a file tool, but a denial only by
// a rule that there is. Tool, path and rules are those that chatd-root sent to the tool.
package broker
