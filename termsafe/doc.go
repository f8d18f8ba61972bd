// Package termsafe makes what a chat printed safe for an operator's terminal.
//
// A terminal obeys what it is sent: it changes its title and its clipboard, answers
// questions as if the answer were typed, and gives keys another meaning. So nothing of a
// chat is passed on as it came. The bytes are read with the state machine of a VT500
// (vt100.net/emu/dec_ansi_parser, the table of charmbracelet/x/ansi), and what is on the
// list of [Level] is written anew, whole and in one spelling: a terminal that would have
// read the bytes differently reads the same as everybody. Everything else is dropped, also
// what nobody has heard of.
//
// # What it does not stop
//
// Text still says what the chat wants it to say, where the chat wants it on the screen: a
// program can paint a prompt that looks like the operator's own. What comes between two
// chats, or before and after, is for the caller to say. A string that never ends hides
// what follows it, up to the next ESC, CAN or SUB.
package termsafe
