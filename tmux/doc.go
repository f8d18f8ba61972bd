// Package tmux is the chat's terminal: it starts the server, types text and keys, and reads the
// screen.
//
// The server runs inside the session, as the chat, under bubblewrap's pid 1, which
// lives as long as any process of the session. Every client runs inside
// the session as well: this package builds command lines and reads answers, and
// the [Exec] it is given enters the session. Root must never be a client, for a
// server can tell its client to run a command (detach-client -E in tmux(1)).
//
// # What it does not stop
//
// The server belongs to the chat. A chat can retitle, resize, respawn or end
// its own terminal, and can forge its screen: the result of Screen is no evidence. The
// package does not check typed text.
package tmux
