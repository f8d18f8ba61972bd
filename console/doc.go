// Package console keeps what a chat's terminal prints, types into the terminal, and waits for what
// that prints.
//
// # Theory of operation
//
// A terminal's output comes through a fifo, from chatd-shim log, which tmux starts as the chat. A
// [Recording] reads it into the chat's ring, of which [Logs] has one for each chat, and follows the
// marks that the shell prints around prompts and commands (OSC 133). The writer never waits for
// chatd: it keeps what chatd does not take, 1 MiB of it, and says what it left out. So chatd may
// take its time, and be restarted.
//
// A [Terminal] types by tmux. A shell at its prompt reads a text and Enter at once; any other program
// gets Enter for itself, once it has shown the text or is silent ([Recording] knows when). Who waits
// reads the ring from the end that it had before the text, until a mark, a silence or the screen says
// that the wait is over.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// All that it reads is the chat's word: a program may print any mark, and so say that a command has
// ended, or with which status. A chat may end the writer of its log: that is said in the log. What is
// read of a chat is bounded by a rate, and a wait by its caller's time.
package console
