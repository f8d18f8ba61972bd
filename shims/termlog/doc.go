// Package termlog is the mode "chatd-shim log": it copies the output of a terminal from tmux to
// chatd's fifo. Each awake chat has one such process.
//
// # Theory of operation
//
// tmux starts it for the pane (pipe-pane in tmux(1); LogCommand in package shims) and writes to its
// standard input. The terminal never waits for chatd. The program holds up to 1 MiB that the fifo
// does not take, and of the rest writes only the size. A program that imports this package runs
// this mode if its arguments select it: see init.
//
// # Runs as
//
// the chat, inside its session.
//
// # What it does not stop
//
// The chat, which may end it, start another, or forge its output. chatd bounds how much of it it
// reads and keeps (package terminal).
package termlog
