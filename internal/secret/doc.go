// Package secret has the words of secrets that a chat can use and not read: which hosts may get
// one, in which header, and what a chat has in its place.
//
// # Theory of operation
//
// A [Spec] is what the config says of a secret: the file of its value, the hosts that may get it,
// and the [Header] in which it is sent. A chat whose profile names the secret has a placeholder of
// its own in its environment ([Keys.Placeholder]). Package egress replaces that by the [Value] on
// the way to one of the hosts, and puts asterisks in the place of the value in what comes back.
//
// A [Value] shows itself to nothing that prints: [Value.Reveal] is the only way to read it.
//
// # Runs as
//
// any user: this package reads no file and keeps no state.
//
// # What it does not stop
//
// A chat may use a secret for whatever the host lets it do. A host of the list that gives the value
// back in another encoding, or in parts, gives it to the chat.
package secret
