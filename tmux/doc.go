// Package tmux is the chat's terminal: how its server is started, how text and
// keys are typed into it, and how its screen is read.
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
// its own terminal, and can make its screen say anything; what Screen returns
// is a chat's word, not evidence. Nothing typed is judged here.
package tmux
