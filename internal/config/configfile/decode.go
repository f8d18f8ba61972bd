package configfile

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/quota"
)

// document is a config as a file has it.
type document struct {
	config.Config `yaml:",inline"`
	ExposePaths   []chat.Expose       `yaml:"expose_paths"` // of all profiles
	CommandSets   map[string][]string `yaml:"command_sets"`
}

// decoder reads YAML into a document by the tags of its fields: the defaults, then the file over
// them, then single settings. It goes on after a fault.
type decoder struct {
	doc     document
	name    string                  // of the file, or where a setting comes from
	setting string                  // the key that is set over the file; empty in a file
	shipped map[string]chat.Profile // those of the defaults; nil while they are read
	begun   map[string]bool         // the profiles of the file and of settings
	anchors map[string]ast.Node
	config.Faults
}

// read reads a file strictly: a key given twice is an error. So are an unknown key and a value of a
// wrong kind, but the rest of the file is read.
func (d *decoder) read(name string, text []byte) error {
	d.name, d.anchors = name, map[string]ast.Node{}
	node, err := parse(name, text)
	d.value(node, reflect.ValueOf(&d.doc).Elem(), "", "")
	return err
}

// parse returns the only document of a text, or nil if it has none.
func parse(name string, text []byte) (ast.Node, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		where, why := name, err.Error()
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			where, why = fmt.Sprintf("%s:%d", name, y.GetToken().Position.Line), y.GetMessage()
			why = strings.Replace(why, "'@' is a reserved character",
				"want quotes around what begins with @", 1)
		}
		return nil, chat.Invalid("cannot use %s: %s", where, why)
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch {
	case len(docs) == 0:
		return nil, nil
	case len(docs) > 1:
		return nil, chat.Invalid("cannot use %s: want one YAML document, got more", name)
	}
	return docs[0].Body, nil
}

// value reads a node into v and reports whether it could. Of key, kind has * for each name and []
// for each index.
func (d *decoder) value(node ast.Node, v reflect.Value, key, kind string) bool {
	want := kindOf(v.Type())
	got := "one value"
	switch n := node.(type) {
	case *ast.TagNode:
		return d.value(n.Value, v, key, kind)
	case *ast.AnchorNode:
		defer func() { d.anchors[n.Name.String()] = n.Value }() // later: an alias in it would have no end
		return d.value(n.Value, v, key, kind)
	case *ast.AliasNode:
		if to, ok := d.anchors[n.Value.String()]; ok {
			return d.value(to, v, key, kind)
		}
		got = "an alias of nothing"
	case *ast.MappingNode:
		if got = "keys"; want == got {
			d.mapping(n, alloc(v), key, kind)
			return true
		}
	case *ast.SequenceNode:
		if got = "a list"; want == got {
			d.list(n.Values, v, key, kind)
			return true
		}
	default:
		text, null := scalar(node)
		switch {
		case want == got:
			return d.text(text, v, key, kind)
		case null:
			return true
		case key == d.setting && want == "a list":
			return d.listText(text, v, key, kind)
		}
	}
	d.Add(key, chat.Invalid("want %s, got %s", want, got))
	return false
}

// kindOf is what YAML has for a type.
func kindOf(t reflect.Type) string {
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
	case t.Kind() == reflect.Slice:
		return "a list"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map, t.Kind() == reflect.Pointer:
		return "keys"
	}
	return "one value"
}

// alloc is v, or the value that the pointer v has afterwards.
func alloc(v reflect.Value) reflect.Value {
	if v.Kind() != reflect.Pointer {
		return v
	}
	if v.IsNil() {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// scalar is the text of a node as it is written, and whether it is null.
func scalar(node ast.Node) (text string, null bool) {
	switch n := node.(type) {
	case nil, *ast.NullNode:
		return "", true
	case *ast.StringNode:
		return n.Value, false
	case *ast.LiteralNode:
		return n.Value.Value, false
	}
	return node.GetToken().Value, false
}

func (d *decoder) list(values []ast.Node, v reflect.Value, key, kind string) {
	all := reflect.MakeSlice(v.Type(), 0, len(values))
	if kind == "allow_missing" {
		all = reflect.AppendSlice(all, v) // flags add to the file
	}
	for i, n := range values {
		at := fmt.Sprintf("%s[%d]", key, i)
		d.mark(at, n)
		item := reflect.New(v.Type().Elem()).Elem()
		if d.value(n, item, at, kind+"[]") {
			all = reflect.Append(all, item)
		}
	}
	v.Set(all)
}

// mapping reads the keys of a struct or a map.
func (d *decoder) mapping(n *ast.MappingNode, v reflect.Value, key, kind string) {
	if v.Kind() == reflect.Map && (v.IsNil() || d.setting == "" && v.Type().Elem().Kind() == reflect.String) {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, e := range d.entries(n, key) {
		name := e.Key.GetToken().Value
		at := strings.TrimPrefix(key+"."+name, ".")
		switch {
		case v.Kind() == reflect.Map &&
			(kind != "owner_shares" || slices.Contains(quota.All(), quota.Share(name))):
			d.entry(e, name, v, at, kind+".*")
		case v.Kind() == reflect.Struct && d.field(e, name, v, at, strings.TrimPrefix(kind+"."+name, ".")):
		default:
			d.AddUnplaced(fmt.Errorf("cannot use %s: %w", d.placeOf(e.Key), unknownKey(name)))
		}
	}
}

// entries are those of a mapping, and those that it merges and does not have itself.
func (d *decoder) entries(n *ast.MappingNode, key string) (all []*ast.MappingValueNode) {
	isMerge := func(e *ast.MappingValueNode) bool { return e.Key.IsMergeKey() }
	all = slices.DeleteFunc(slices.Clone(n.Values), isMerge)
	for _, e := range n.Values {
		if !isMerge(e) {
			continue
		}
		from, ok := d.anchors[strings.TrimPrefix(e.Value.String(), "*")].(*ast.MappingNode)
		if !ok {
			d.Add(key, chat.Invalid("want << with an alias of keys"))
			continue
		}
		for _, e := range d.entries(from, key) {
			same := func(o *ast.MappingValueNode) bool {
				return o.Key.GetToken().Value == e.Key.GetToken().Value
			}
			if !slices.ContainsFunc(all, same) {
				all = append(all, e)
			}
		}
	}
	return all
}

// entry reads one entry of a map.
func (d *decoder) entry(e *ast.MappingValueNode, name string, v reflect.Value, at, kind string) {
	k := reflect.ValueOf(name).Convert(v.Type().Key())
	item := reflect.New(v.Type().Elem()).Elem()
	if old := v.MapIndex(k); old.IsValid() {
		item.Set(old)
	}
	if kind == "profiles.*" && !d.begun[name] {
		item.Set(reflect.ValueOf(d.begin(name)))
	}
	d.mark(at, e.Key)
	d.value(e.Value, item, at, kind)
	v.SetMapIndex(k, item)
}

// field reads one field of a struct, if it has it.
func (d *decoder) field(e *ast.MappingValueNode, name string, v reflect.Value, at, kind string) bool {
	f, ok := fieldOf(v.Type(), name)
	if ok {
		d.mark(at, e.Key)
		d.value(e.Value, v.FieldByIndex(f.Index), at, kind)
	}
	return ok
}

// fieldOf is the field of a struct that has the key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && key != "" && config.KeyOf(f) == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// text reads the text of one value. An empty one keeps what is there.
func (d *decoder) text(text string, v reflect.Value, key, kind string) bool {
	if text == "" && !strings.HasSuffix(kind, "[]") {
		return true
	}
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	err := setText(v, text)
	if err == nil {
		err = config.CheckValue(kind, v.Addr().Interface(), text)
	}
	if err != nil {
		v.Set(old)
		d.Add(key, err)
		return false
	}
	if p, ok := v.Addr().Interface().(*chat.Pattern); ok {
		p.Place = d.Places[key]
	}
	return true
}

// mark notes where a key is written.
func (d *decoder) mark(key string, node ast.Node) {
	if _, there := d.Places[key]; !there || d.setting == "" || key == d.setting {
		d.Places[key] = d.placeOf(node)
	}
}

func (d *decoder) placeOf(node ast.Node) string {
	if d.setting != "" {
		return d.name
	}
	return fmt.Sprintf("%s:%d", d.name, node.GetToken().Position.Line)
}

// begin is what a profile of the file starts from: limits, commands, guard, variables and defaults
// of the shipped profile of its name, or limits, commands and guard of the default.
func (d *decoder) begin(name string) chat.Profile {
	p := chat.Profile{Name: name, Limits: chat.DefaultLimits(), TimeoutMax: chat.MaxTimeout}
	base, ok := d.shipped[name]
	if ok {
		p.Limits, p.Env, p.Defaults = base.Limits, base.Env, base.Defaults
	} else if base, ok = d.shipped[chat.DefaultProfile]; !ok {
		base = d.doc.Profiles[chat.DefaultProfile]
	}
	p.Commands, p.Guard = slices.Concat(base.Commands, base.CommandsAdd), base.Guard
	maps.DeleteFunc(d.Places, func(key, _ string) bool {
		return strings.HasPrefix(key, "profiles."+name+".")
	})
	d.begun[name] = true
	return p
}
