// Package termlog is the mode "chatd-shim log": it passes on what a terminal prints, from tmux to
// chatd's fifo. One stays in each awake chat.
//
// # Theory of operation
//
// tmux starts it for the pane (pipe-pane in tmux(1); LogCommand in package shims) and writes to
// its standard input. The terminal never waits for chatd: what the fifo does not take is kept, 1
// MiB of it, and of the rest the fifo is told how much it was. A program that imports this package
// is that mode where its arguments say so: see init.
//
// # Runs as
//
// the chat, inside its session.
//
// # What it does not stop
//
// The chat, which may end it or start another: what it passes on is the chat's word. chatd bounds
// what it reads and keeps of it (package ring).
package termlog
