package rulefile

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Bounds on a file of rules. Both readers are recursive, so nesting has a bound
// before they start.
const (
	maxFile    = 1 << 20
	maxOpeners = 50_000
	maxNested  = 1000 // brackets, counted also in strings
	maxDashes  = 100  // at the head of one line
	maxDepth   = 12   // one more than the schema needs
)

// faultAt is a fault of the whole file, in a line of it.
func faultAt(name string, line int, why string) error {
	return filerules.Fault{Place: fmt.Sprintf("%s:%d", name, line), Why: why, Line: line}
}

// kind is the type of a node in a file.
type kind int

const (
	kindText kind = iota
	kindBool
	kindNull
	kindNumber
	kindList
	kindMapping
	kindOther // a type that no schema allows; text names it
)

func (k kind) String() string {
	return [...]string{"a string", "true or false", "null", "a number", "a list", "a mapping",
		"something else"}[k]
}

// node is a value of a file of rules with its line, from whichever language.
type node struct {
	kind  kind
	text  string
	flag  bool
	line  int
	items []node
	keys  []entry
}

// entry is one key of a mapping, in the order of the file; keys may be duplicate.
type entry struct {
	name  string
	line  int
	value node
}

// is describes the node, for an error.
func (n node) is() string {
	switch n.kind {
	case kindText:
		return "the string " + chat.Quote(n.text)
	case kindOther:
		return n.text
	}
	return n.kind.String()
}

// parseTree reads YAML or JSON5. Text that begins with a brace or a JSON5 comment is JSON5,
// whatever the file's name. Clawdbot's files are, and of YAML rules only a flow mapping begins so,
// which is tried second.
func parseTree(name string, text []byte) (node, error) {
	if len(text) > maxFile {
		return node{}, filerules.Fault{Place: name,
			Why: fmt.Sprintf("it has %d bytes, want at most %d", len(text), maxFile)}
	}
	if line := tooDeep(text); line > 0 {
		return node{}, faultAt(name, line, "it is nested too deep, or in too many pieces")
	}
	if at := invalidByte(text); at >= 0 {
		return node{}, faultAt(name, lineAt(text, at), "want text in UTF-8 without NUL")
	}
	first := strings.TrimLeft(string(text), " \t\r\n")
	isJSON := strings.HasPrefix(path.Ext(name), ".json")
	if !isJSON && !strings.HasPrefix(first, "{") && !strings.HasPrefix(first, "//") &&
		!strings.HasPrefix(first, "/*") {
		return parseYAML(name, text)
	}
	n, err := parseJSON5(name, text)
	if err == nil || isJSON || !strings.HasPrefix(first, "{") {
		return n, err
	}
	if flow, err := parseYAML(name, text); err == nil {
		return flow, nil
	}
	return n, err
}

// tooDeep is the line at which brackets, or dashes at the head of a line, are nested too deep for
// rules; 0 if none is. It does not parse strings, and counts their brackets too, to protect the
// parsers' stack.
func tooDeep(text []byte) int {
	line, depth, openers, dashes, head := 1, 0, 0, 0, true
	for _, c := range text {
		switch c {
		case '\n':
			line, dashes, head = line+1, 0, true
		case '[', '{', '(':
			depth++
			openers++
			head = false
		case ']', '}', ')':
			depth = max(depth-1, 0)
			head = false
		case '-', '?':
			if head {
				dashes++
			}
		case ' ', '\t', '\r':
		default:
			head = false
		}
		if depth > maxNested || dashes > maxDashes || openers > maxOpeners {
			return line
		}
	}
	return 0
}

// invalidByte is the offset of the first byte that is not UTF-8, or is NUL; -1 if there is none.
func invalidByte(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == 0 || r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

func lineAt(text []byte, offset int) int {
	return 1 + bytes.Count(text[:min(max(offset, 0), len(text))], []byte("\n"))
}
