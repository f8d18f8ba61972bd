// Package termsafe makes the output of a chat safe for an operator's terminal.
//
// A terminal executes the sequences that it receives. It changes its title and its clipboard,
// answers questions as if the answer were typed, and gives keys another meaning. So no sequence of
// a chat is passed on unchanged. The package reads the bytes with the state machine of a VT500
// (vt100.net/emu/dec_ansi_parser, the table of charmbracelet/x/ansi), and writes the sequences on
// the list of [Level] anew, whole and in one spelling, which every terminal reads alike. It drops
// everything else, also unknown sequences.
//
// # What it does not stop
//
// The chat chooses the text and its place on the screen: a program can paint a prompt that
// looks like the operator's own. The caller marks where one chat's output ends and
// another's begins. A string that never ends hides the text behind it, up to the next ESC,
// CAN or SUB.
package termsafe
