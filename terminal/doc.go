// Package terminal renders the output of chats' terminals as text, in the front.
//
// chatd-root passes on a terminal's output and does not parse it. It only says where a command's
// output lies in the log ([chat.Typed].Output), and returns a screen with styles unchanged from the
// chat's tmux. [Chats] wraps such chats and renders both by package termsafe, so that unprivileged
// code parses a terminal's sequences (adrs/0042).
//
// # Runs as
//
// The front, as user chatd.
//
// # What it does not stop
//
// The chat chooses the text, see package termsafe. A screen without styles and the log pass
// unchanged: the command line makes them safe for an operator's terminal.
package terminal
