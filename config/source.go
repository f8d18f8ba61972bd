package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
)

// parseSource reads YAML strictly: a key given twice is an error. So are an unknown key and a value
// of a wrong kind, but those are in misfits, and the rest is read.
func parseSource(name string, text []byte) (source, error) {
	s := source{name: name, text: text}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return s, yamlFault(name, err)
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch {
	case len(docs) == 0:
		return s, nil
	case len(docs) > 1:
		return s, fmt.Errorf("cannot use %s: want one YAML document, got more: %w", name, chat.ErrInvalid)
	}
	if !s.fit(docs[0].Body, reflect.TypeFor[fileConfig](), "") {
		return s, nil
	}
	if err := yaml.NodeToValue(docs[0].Body, &s.file, yaml.Strict()); err != nil {
		return s, yamlFault(name, err)
	}
	return s, nil
}

func yamlFault(name string, err error) error {
	where, why := name, err.Error()
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil {
		where, why = fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), y.GetMessage()
	}
	return fmt.Errorf("cannot use %s: %s: %w", where, why, chat.ErrInvalid)
}

// fit takes the values that do not fit the type out of mappings, and adds them to s.misfits. It
// reports whether node itself is of the right kind. Aliases are left to the decoder.
func (s *source) fit(node ast.Node, t reflect.Type, at string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	got, want := "one value", map[reflect.Kind]string{
		reflect.Struct: "keys", reflect.Map: "keys", reflect.Slice: "a list", reflect.Bool: "true or false",
	}[t.Kind()]
	switch n := node.(type) {
	case nil, *ast.NullNode, *ast.AliasNode, *ast.AnchorNode, *ast.TagNode:
		return true
	case *ast.MappingNode:
		if got = "keys"; want == got {
			n.Values = slices.DeleteFunc(n.Values, func(v *ast.MappingValueNode) bool { return !s.fitKey(v, t, at) })
			return true
		}
	case *ast.SequenceNode:
		if got = "a list"; want == got {
			ok := true
			for i, v := range n.Values {
				ok = s.fit(v, t.Elem(), fmt.Sprintf("%s[%d]", at, i)) && ok
			}
			return ok
		}
	case *ast.BoolNode:
		if want == "true or false" {
			return true
		}
	}
	if want == "" && got == "one value" {
		return true
	}
	why := fmt.Errorf("want %s, got %s: %w", cmp.Or(want, "one value"), got, chat.ErrInvalid)
	s.misfits = append(s.misfits, s.fault(at, why))
	return false
}

// fitKey is fit for a key of a struct or a map, and its value.
func (s *source) fitKey(v *ast.MappingValueNode, t reflect.Type, at string) bool {
	key := v.Key.GetToken().Value
	of, known := t, true
	if t.Kind() == reflect.Map {
		of, known = t.Elem(), t.Key() != reflect.TypeFor[quota.Share]() || slices.Contains(quota.All(), quota.Share(key))
	} else if !v.Key.IsMergeKey() {
		of, known = keyType(t, key)
	}
	if !known {
		s.misfits = append(s.misfits, fmt.Errorf("cannot use %s:%d: unknown key %s: want a key of chatd serve --check: %w",
			s.name, v.Key.GetToken().Position.Line, chat.Quote(key), chat.ErrInvalid))
		return false
	}
	return s.fit(v.Value, of, strings.TrimPrefix(at+"."+key, "."))
}

// keyType is the type of a key in a struct.
func keyType(t reflect.Type, key string) (reflect.Type, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Tag.Get("yaml") == key {
			return f.Type, true
		}
		if f.Tag.Get("yaml") == ",inline" {
			if of, ok := keyType(f.Type, key); ok {
				return of, true
			}
		}
	}
	return nil, false
}

// fault makes err an error of the key, with its line.
func (s source) fault(key string, err error) error {
	where := s.name
	if line := s.line(key); line > 0 {
		where = fmt.Sprintf("%s:%d", s.name, line)
	}
	return fmt.Errorf("cannot use %s: %s: %w", where, key, err)
}

// faultIn makes err an error of the key where the last source has it.
func faultIn(sources []source, key string, err error) error {
	for _, s := range slices.Backward(sources) {
		if s.line(key) > 0 {
			return s.fault(key, err)
		}
	}
	return fmt.Errorf("cannot use %s: %w", key, err)
}

// line is the line of key, or of the nearest enclosing key that exists; 0 if none does.
func (s source) line(key string) int {
	for key != "" && s.text != nil {
		path, err := yaml.PathString("$." + key)
		if err == nil {
			node, err := path.ReadNode(bytes.NewReader(s.text))
			if err == nil && node.GetToken() != nil {
				return node.GetToken().Position.Line
			}
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// faults collects the faults of the keys below one key.
type faults struct {
	source
	at  string // with a dot at its end
	all []error
}

// add adds err, if it is one, as a fault of the key.
func (f *faults) add(key string, err error) {
	if err != nil {
		f.all = append(f.all, f.fault(f.at+key, err))
	}
}

// read reads the value of a key, if it has one.
func (f *faults) read(key, value string, into func(string) error) {
	if value != "" {
		f.add(key, into(value))
	}
}

// allows reads a list of destinations.
func (f *faults) allows(key string, texts []string) (list []chat.Allow) {
	for i, text := range texts {
		allow, err := chat.ParseAllow(text)
		if err == nil {
			list = append(list, allow)
		}
		f.add(fmt.Sprintf("%s[%d]", key, i), err)
	}
	return list
}

// encodeYAML writes cfg with the names of its JSON fields, which are the keys of a file.
func encodeYAML(w io.Writer, cfg Config) error {
	return errors.Join(yaml.NewEncoder(w, yaml.UseJSONMarshaler(), yaml.IndentSequence(true)).Encode(cfg))
}
