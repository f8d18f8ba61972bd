package mcp

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/chatd/chatd/chat"
)

// durations are the text that chat.Duration reads and writes.
var durations = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[chat.Duration](): {Type: "string", Pattern: `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`}}

// describe is how a field's schema gets what its tags say.
type describe func(*jsonschema.Schema, reflect.StructTag) error

// schemaOf describes the arguments or the structured answer T by the tags that the API's description
// is made from.
func schemaOf[T any](d describe) (*jsonschema.Schema, error) {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: durations})
	if err == nil {
		err = describeFields(s, reflect.TypeFor[T](), d)
	}
	return s, err
}

// describeFields describes each field of t, and the fields within.
func describeFields(s *jsonschema.Schema, t reflect.Type, describe describe) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[name]
		if name == "-" || p == nil {
			continue
		}
		if err := describe(p, f.Tag); err != nil {
			return fmt.Errorf("cannot describe %s: %w", name, err)
		}
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() != reflect.Struct || p.Properties == nil {
			continue
		}
		if err := describeFields(p, inner, describe); err != nil {
			return err
		}
	}
	return nil
}

// describeResult copies the description of an answer's field.
func describeResult(p *jsonschema.Schema, tag reflect.StructTag) error {
	p.Description = tag.Get("doc")
	return nil
}

// describeArgument copies the tags that huma reads.
func describeArgument(p *jsonschema.Schema, tag reflect.StructTag) error {
	p.Description = tag.Get("doc")
	if p.Types != nil { // nil in Go is left out here, never null
		p.Type, p.Types = p.Types[len(p.Types)-1], nil
	}
	for _, v := range strings.FieldsFunc(tag.Get("enum"), func(r rune) bool { return r == ',' }) {
		p.Enum = append(p.Enum, v)
	}
	bounds := map[string]func(int){
		"minimum":   func(n int) { f := float64(n); p.Minimum = &f },
		"maximum":   func(n int) { f := float64(n); p.Maximum = &f },
		"maxLength": func(n int) { p.MaxLength = &n },
		"maxItems":  func(n int) { p.MaxItems = &n },
	}
	for name, set := range bounds {
		text, ok := tag.Lookup(name)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("cannot use %s %s: %w", name, chat.Quote(text), err)
		}
		set(n)
	}
	return nil
}
