package mcp

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/chatd/chatd/chat"
)

// schemaOf describes the arguments T by the tags that the API's description is made
// from. without are the fields that a tool has no use for, with those that it must have
// beside the ones that T names.
func schemaOf[T any](without, with []string) (*jsonschema.Schema, error) {
	duration := &jsonschema.Schema{Type: "string", Pattern: `^([0-9.]+(ns|us|ms|s|m|h))+$`}
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[chat.Duration](): duration}})
	if err != nil {
		return nil, fmt.Errorf("cannot describe the arguments: %w", err)
	}
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if slices.Contains(without, name) {
			delete(s.Properties, name)
			continue
		}
		if err := describe(s.Properties[name], f.Tag); err != nil {
			return nil, fmt.Errorf("cannot describe the argument %s: %w", name, err)
		}
	}
	s.PropertyOrder = slices.DeleteFunc(s.PropertyOrder, func(n string) bool { return slices.Contains(without, n) })
	s.Required = append(s.Required, with...)
	return s, nil
}

// describe takes over the tags that huma reads.
func describe(p *jsonschema.Schema, tag reflect.StructTag) error {
	if p == nil {
		return fmt.Errorf("it has no schema")
	}
	p.Description = tag.Get("doc")
	if p.Types != nil { // a pointer or a list, which Go could leave nil: here it is there or left out
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
