package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/titanous/json5"

	"github.com/chatd/chatd/filerules"
)

// parseJSON5 reads JSON5 with positions. The library has none, but passes each value to
// UnmarshalJSON as a subslice of the input, so that its remaining capacity reveals its position.
func parseJSON5(name string, text []byte) (n node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = filerules.Fault{Place: name, Why: "want JSON5"}
		}
	}()
	clean, err := blankComments(name, text)
	if err != nil {
		return node{}, err
	}
	var v json5Value
	if err := json5.Unmarshal(clean, &v); err != nil {
		return node{}, json5Fault(name, text, err)
	}
	b := json5Tree{text: clean}
	return b.node(v.raw, 0), nil
}

func json5Fault(name string, text []byte, err error) error {
	var syntax *json5.SyntaxError
	if !errors.As(err, &syntax) {
		return filerules.Fault{Place: name, Why: fmt.Sprintf("%v: want JSON5", err)}
	}
	return faultAt(name, lineAt(text, int(syntax.Offset)-1), syntax.Error()+": want JSON5")
}

// blankComments makes comments blanks and leaves every other byte where it is. The
// library reads comments too, but ends /* a*b/c */ at the first slash.
func blankComments(name string, text []byte) ([]byte, error) {
	out := slices.Clone(text)
	for i := 0; i < len(out); {
		switch {
		case out[i] == '"' || out[i] == '\'':
			i = stringEnd(out, i)
		case bytes.HasPrefix(out[i:], []byte("//")):
			end := len(out)
			if n := bytes.IndexAny(out[i:], "\r\n"); n >= 0 {
				end = i + n
			}
			i = blank(out, i, end)
		case bytes.HasPrefix(out[i:], []byte("/*")):
			n := bytes.Index(out[i+2:], []byte("*/"))
			if n < 0 {
				return nil, faultAt(name, lineAt(out, i), "a comment begins and does not end: want */")
			}
			i = blank(out, i, i+n+4)
		default:
			i++
		}
	}
	return out[:len(out):len(out)], nil
}

// stringEnd is the position after the string that begins at i.
func stringEnd(text []byte, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return len(text)
}

func blank(text []byte, from, to int) int {
	for i := from; i < to; i++ {
		if text[i] != '\n' && text[i] != '\r' {
			text[i] = ' '
		}
	}
	return to
}

// json5Value is a value in its source text.
type json5Value struct{ raw []byte }

// UnmarshalJSON keeps the part of the text that is the value.
func (v *json5Value) UnmarshalJSON(raw []byte) error {
	v.raw = raw
	return nil
}

// json5Key is a key that equals no other, so that a map keeps duplicates.
type json5Key struct {
	name   string
	serial uint64
}

var json5Serial atomic.Uint64

// UnmarshalText takes the key.
func (k *json5Key) UnmarshalText(text []byte) error {
	*k = json5Key{string(text), json5Serial.Add(1)}
	return nil
}

// json5Tree makes nodes of the values in text.
type json5Tree struct{ text []byte }

func (b json5Tree) at(raw []byte) int { return len(b.text) - cap(raw) }

func (b json5Tree) node(raw []byte, depth int) node {
	n := node{line: lineAt(b.text, b.at(raw))}
	var err error
	switch c := raw[0]; {
	case depth > maxDepth:
		n.kind, n.text = kindOther, "something nested too deep"
	case c == '{':
		n.kind = kindMapping
		n.keys, err = b.mapping(raw, depth)
	case c == '[':
		n.kind = kindList
		var items []json5Value
		err = json5.Unmarshal(raw, &items)
		for _, item := range items {
			n.items = append(n.items, b.node(item.raw, depth+1))
		}
	case c == '"' || c == '\'':
		err = json5.Unmarshal(raw, &n.text)
	case c == 't' || c == 'f':
		n.kind, n.flag = kindBool, c == 't'
	case c == 'n':
		n.kind = kindNull
	default:
		n.kind = kindNumber
	}
	if err != nil {
		return node{kind: kindOther, text: "something unreadable", line: n.line}
	}
	return n
}

func (b json5Tree) mapping(raw []byte, depth int) ([]entry, error) {
	var m map[json5Key]json5Value
	if err := json5.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	byPlace := slices.SortedFunc(maps.Keys(m), func(x, y json5Key) int {
		return b.at(m[x].raw) - b.at(m[y].raw)
	})
	var keys []entry
	for _, k := range byPlace {
		raw := m[k].raw
		keys = append(keys, entry{name: k.name, line: b.keyLine(b.at(raw)), value: b.node(raw, depth+1)})
	}
	return keys, nil
}

// keyLine is the line of the key whose value begins at offset: that of the last byte before the
// colon.
func (b json5Tree) keyLine(offset int) int {
	before := bytes.TrimRight(b.text[:offset], " \t\r\n\f")
	before = bytes.TrimRight(bytes.TrimSuffix(before, []byte(":")), " \t\r\n\f")
	return lineAt(b.text, len(before))
}
