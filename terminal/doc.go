// Package terminal makes what chats' terminals show into text, in the front.
//
// chatd-root passes on what a terminal printed and does not read it: where a command's output lies
// in the log is all that it says ([chat.Typed].Output), and a screen with styles is as the chat's
// tmux gave it. [Chats] stands before such chats and renders both by package termsafe, so that a
// terminal's sequences are parsed without a privilege (adrs/0042).
//
// # Runs as
//
// The front, as user chatd.
//
// # What it does not stop
//
// The text is what the chat wants it to be, see package termsafe. A screen without styles and the
// log are passed on as they come: the command line makes them safe for an operator's terminal.
package terminal
