// Package chat defines the vocabulary of chatd: a chat, the operations on it and the kinds of
// failure. Every other package uses these types, and the API's JSON is their encoding, so that a
// noun has one spelling from the CLI down to the kernel.
//
// A chat is one conversation and everything it owns on the host. It is created on its first
// message. It is awake while it has a session and asleep otherwise. Reaping removes everything that
// it owns. A profile is a named policy that many chats share: limits, egress, commands.
//
// # What it does not stop
//
// Nothing: this package has no effects. It imports no other package of chatd, and its Validate
// methods check form only. Package provision authorises callers, and the probes of the layers check
// what the kernel enforces.
package chat
