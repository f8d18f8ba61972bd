// Package packetrules keeps the packet rules of all chats as the profiles in force want them.
//
// Package netpolicy writes the rules. This package says which: a policy for the blocks of uids that a
// profile owns, one for each chat whose egress differs from its profile's, and one for the sockets to
// DNS servers. They stand before the first uid of a block has an account, and stay when it is spent.
// Somebody else's change is put right ([Rules.Watch]), and nothing new begins until it is
// ([Rules.Await]).
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Root changes the rules at will: between that change and its repair a chat with the host's network
// is without a wall.
package packetrules
