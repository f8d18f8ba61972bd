package rulefile

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/chatd/chatd/filerules"
)

// parseYAML reads one YAML document with positions. Anchors, aliases, tags and merge keys are
// refused: in rules, * begins an unquoted pattern.
func parseYAML(name string, text []byte) (n node, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = filerules.Fault{Place: name, Why: "want YAML"}
		}
	}()
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return node{}, yamlFault(name, err)
	}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			docs = append(docs, d.Body)
		}
	}
	switch len(docs) {
	case 0:
		if line := firstContent(text); line > 0 {
			return node{}, faultAt(name, line, "want a mapping with access, agents, guard, routing")
		}
		return node{kind: kindMapping, line: 1}, nil
	case 1:
		return yamlNode(docs[0], 0), nil
	}
	return node{}, faultAt(name, docs[1].GetToken().Position.Line, "want one YAML document, got more")
}

// firstContent is the first line that is not blank, a comment or the head of a document. The parser
// treats some of them, such as a lone tag, as empty.
func firstContent(text []byte) int {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if s := strings.TrimSpace(line); s != "" && s[0] != '#' && s != "---" && s != "..." {
			return n
		}
	}
	return 0
}

func yamlFault(name string, err error) error {
	var y yaml.Error
	if !errors.As(err, &y) || y.GetToken() == nil {
		return filerules.Fault{Place: name, Why: strings.ReplaceAll(err.Error(), "\n", " ") + ": want YAML"}
	}
	return faultAt(name, y.GetToken().Position.Line, y.GetMessage()+": want YAML")
}

func yamlNode(n ast.Node, depth int) node {
	out := node{kind: kindOther, text: "something that is no string, list or mapping", line: yamlLine(n)}
	if depth > maxDepth {
		out.text = "something nested too deep"
		return out
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		out.kind = kindMapping
		for _, v := range n.Values {
			out.keys = append(out.keys, yamlEntry(v, depth))
		}
		if len(out.keys) > 0 {
			out.line = out.keys[0].line
		}
	case *ast.MappingValueNode:
		out.kind = kindMapping
		out.keys = []entry{yamlEntry(n, depth)}
		out.line = out.keys[0].line
	case *ast.SequenceNode:
		out.kind = kindList
		for _, v := range n.Values {
			out.items = append(out.items, yamlNode(v, depth+1))
		}
	case *ast.StringNode:
		out.kind, out.text = kindText, n.Value
	case *ast.LiteralNode:
		out.kind, out.text = kindText, n.Value.Value
	case *ast.BoolNode:
		out.kind, out.flag = kindBool, n.Value
	case *ast.NullNode:
		out.kind = kindNull
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out.kind = kindNumber
	case *ast.AliasNode:
		out.text = "a YAML alias: put quotes around a pattern that begins with *"
	case *ast.AnchorNode:
		out.text = "a YAML anchor: put quotes around a pattern that begins with &"
	case *ast.TagNode:
		out.text = "a YAML tag: put quotes around a pattern that begins with !"
	}
	return out
}

func yamlEntry(v *ast.MappingValueNode, depth int) entry {
	e := entry{line: yamlLine(v.Key), value: yamlNode(v.Value, depth+1)}
	switch key := v.Key.(type) {
	case *ast.StringNode:
		e.name = key.Value
	default:
		e.name = key.String()
	}
	return e
}

func yamlLine(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 1
	}
	return n.GetToken().Position.Line
}
