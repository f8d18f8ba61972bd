// Package chat holds the words of chatd: what a chat is, what may be asked of
// it, and what can go wrong. Every other package speaks in these types, and the
// JSON of the API is these types, so that a noun has one spelling from the CLI
// down to the kernel.
//
// A chat is one conversation and everything it owns on the host. It is created
// on its first message, is awake while it has a session and asleep otherwise,
// and is reaped when nothing of it shall stay. A profile is a named policy that
// many chats share: limits, egress, commands.
//
// # What it does not stop
//
// Nothing: this package has no effects. It imports no other package of chatd,
// and Validate methods check form only. Whether a caller may touch a chat is
// provision's to say, whether the kernel keeps a wall is for the layers to probe.
package chat
