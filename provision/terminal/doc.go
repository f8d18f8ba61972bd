// Package terminal keeps the output of a chat's terminal, types into the terminal, and waits for its
// output.
//
// # Theory of operation
//
// A terminal's output comes through a fifo, from chatd-shim log, which tmux starts as the chat. A
// [Recording] reads it into the chat's ring, of which [Logs] has one for each chat, and follows the
// marks that the shell prints around prompts and commands (OSC 133). The writer never waits for
// chatd: it holds up to 1 MiB of unread output, and reports how much it dropped. So chatd may
// be slow, or restart.
//
// A [Terminal] types by tmux. A shell at its prompt gets a text and Enter together. Any other
// program gets Enter separately, once it has shown the text or is silent ([Recording] knows when).
// A wait reads the ring from the end that it had before the text, until a mark, a silence or the
// screen ends the wait. Inputs of several callers do not mix, and one caller at a time waits.
//
// # Runs as
//
// root, in chatd-root.
//
// # What it does not stop
//
// The chat controls all that it reads: a program may print any mark, and so forge the end of a
// command and its status. A chat may end the writer of its log: the log then says so. A rate bounds
// how much chatd reads of a chat, and the caller's time bounds a wait.
//
// The directories of logs are root's; they are not defended against other writers there. Logs are
// not synced: after a power cut the end of one may be missing, and its cursors are then used a
// second time.
package terminal
