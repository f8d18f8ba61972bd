package tmux

import (
	"regexp"
	"strings"
	"unicode"
)

// controlSequence is CSI with its parameters (ECMA-48, section 5.4), as in the marks of a bracketed
// paste and in colours that were pasted from a log.
var controlSequence = regexp.MustCompile(`(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]`)

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Typeable is a text as people write it: line ends of every system are line feeds; terminal
// sequences, and control characters other than tab and line feed, are left out. So no text is a
// key, and none ends the frame of a bracketed paste around it: what a person writes would be
// commands of the program that reads.
func Typeable(text string) string {
	text = controlSequence.ReplaceAllString(lineEnds.Replace(text), "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return -1
		}
		return r
	}, text)
}
