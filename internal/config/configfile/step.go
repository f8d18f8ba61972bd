package configfile

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/config"
)

// Step compiles one text for chatd-root: args are what it is, what it is called, and what is set over
// it. It touches nothing but in and out, and writes nothing if there is an error.
func Step(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return chat.Invalid("cannot compile %d arguments: want what it is and its name", len(args))
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", chat.Quote(args[1]), err)
	}
	compiled, err := compile(args, text)
	if err != nil {
		return err
	}
	_, err = out.Write(compiled)
	return err
}

func compile(args []string, text []byte) ([]byte, error) {
	name := args[1]
	switch args[0] {
	case config.StepRules:
		p, err := rulefile.Load(name, text)
		if err != nil {
			return nil, err
		}
		return p.Compiled(), nil
	case config.StepConfig, config.StepDefaults:
		if args[0] == config.StepDefaults {
			text = nil
		}
		set, err := settingsOf(name, text, args[2:])
		if err != nil {
			return nil, err
		}
		cfg, err := Compile(name, text, set)
		if err != nil {
			return nil, err
		}
		return cfg.Compiled()
	}
	return nil, chat.Invalid("cannot compile %s: want config, defaults or rules", chat.Quote(args[0]))
}

// settingsOf reads variables and settings over a file.
func settingsOf(name string, text []byte, args []string) (all []Setting, err error) {
	variables := []string{}
	for _, arg := range args {
		if strings.HasPrefix(arg, config.VariablePrefix) {
			variables = append(variables, arg)
			continue
		}
		s, err := ParseSetting(arg)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	first, err := variablesOver(name, text, variables)
	return append(first, all...), err
}

// Setting is a value over the file: of a variable or a flag.
type Setting struct {
	Path  []string // the keys, from the outside in
	Value string   // as in a file; a list is in brackets, or has commas
	From  string   // the variable or the flag
}

// Text is KEY/KEY=VALUE, which names a key also where a profile's name has a dot.
func (s Setting) Text() string { return strings.Join(s.Path, "/") + "=" + s.Value }

// ParseSetting reads [Setting.Text].
func ParseSetting(text string) (Setting, error) {
	keys, value, ok := strings.Cut(text, "=")
	if !ok {
		return Setting{}, config.Wrong(text, "KEY/KEY=VALUE")
	}
	path := strings.Split(keys, "/")
	return Setting{path, value, config.VariablePrefix + variable(strings.Join(path, "_"))}, nil
}

// variable is a key as the names of variables have it.
func variable(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' {
			return '_'
		}
		return r
	}, strings.ToUpper(key))
}

// set reads a setting over the file.
func (d *decoder) set(s Setting) {
	d.name, d.setting = s.From, strings.Join(s.Path, ".")
	_, profile := d.doc.Profiles[s.Path[min(1, len(s.Path)-1)]]
	if s.Path[0] == "profiles" && !profile {
		d.AddUnplaced(chat.Invalid("cannot use %s: %s: the file has no such profile", s.From, d.setting))
		return
	}
	var node ast.Node = textNode(s.Value)
	for _, key := range slices.Backward(s.Path) {
		colon := token.New(":", ":", &token.Position{})
		node = ast.Mapping(colon, false, ast.MappingValue(colon, textNode(key), node))
	}
	d.value(node, reflect.ValueOf(&d.doc).Elem(), "", "")
}

func textNode(text string) *ast.StringNode {
	return ast.String(token.New(text, text, &token.Position{}))
}

// listText reads a list from one text: YAML's in brackets, or one with commas.
func (d *decoder) listText(text string, v reflect.Value, key, kind string) bool {
	if !strings.HasPrefix(text, "[") {
		var items []ast.Node
		for item := range strings.SplitSeq(text, ",") {
			items = append(items, textNode(strings.TrimSpace(item)))
		}
		d.list(items, v, key, kind)
		return true
	}
	node, err := parse(d.name, []byte(text))
	if list, ok := node.(*ast.SequenceNode); ok {
		d.list(list.Values, v, key, kind)
		return true
	}
	if d.Add(key, config.Wrong(text, "a list")); err != nil {
		d.AddUnplaced(err)
	}
	return false
}
