// Package secrets reads the secrets of the config, and makes what chats get in their place.
//
// A chat whose profile names a secret has a placeholder in a variable; chatd-egress puts the value in
// its place on the way to the secret's hosts, for which it ends TLS with a certificate of chatd's own
// authority. Placeholders and the authority derive from the install key, so they outlive a restart.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// Whoever reads the files of the secrets, or the memory of chatd-root or chatd-egress, has the values.
// A chat may use a secret for whatever the secret's hosts allow.
package secrets
