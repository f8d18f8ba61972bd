// Package printer writes the answers of chatd's command line: tables and lines for people, JSON for
// programs, and the output of chats.
//
// Each function makes the text of one answer, a value of package chat; what has a chat's own output
// in it takes the writer. A command of cmd/chatd reads its flags, asks the daemon, and passes the
// answer on. So each text can be compared with the page in testdata that a person would read.
//
// Three kinds of text go to a terminal, and none as it came:
//
//   - Text in a table or a line ([Cell], [Escape]): what is not printable becomes its Go escape.
//   - Output of a chat ([ChatText], [ChatWriter]): the same on a terminal; a file or a pipe gets
//     every byte.
//   - Output of a chat's terminal ([LogWriter], [Screen]): package termsafe decides what of it a
//     terminal gets.
//
// JSON is escaped everywhere ([JSON]), also where encoding/json would leave a control character.
//
// # Runs as
//
// The user who calls chatd. It opens nothing, asks nobody, and reads no flag and no environment.
//
// # What it does not stop
//
// A chat that writes text which looks like chatd's own. The program that reads chatd from a pipe
// gets what a chat printed as it is. Every character device counts as a terminal, also /dev/null.
package printer
