package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/chatd/chatd/chat"
)

// LimitValue reads the value of a key of limits as the config has it, and returns it as the API
// has.
func LimitValue(key, text string) (json.RawMessage, error) {
	var l chat.Limits
	if err := setLimit(&l, key, text); err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	b, err := json.Marshal(l)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if v, ok := all[key]; ok {
		return v, err
	}
	return json.RawMessage("0"), err // left out of JSON
}

// setLimit reads the value of a key of limits. [chat.Limits] alone lists the keys, in the
// yaml tags of its fields. An empty value keeps the limit as it is.
func setLimit(l *chat.Limits, key, value string) error {
	fields := reflect.VisibleFields(reflect.TypeFor[chat.Limits]())
	i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("yaml") == key })
	if i < 0 {
		return fmt.Errorf("unknown key %s: want a key of chatd serve --check: %w",
			chat.Quote(key), chat.ErrInvalid)
	}
	if value == "" {
		return nil
	}
	v := reflect.ValueOf(l).Elem().FieldByIndex(fields[i].Index)
	switch limit := v.Addr().Interface().(type) {
	case *uint64:
		return size(limit, anySize, "")(value)
	case *chat.Duration:
		return into(limit, duration, func(chat.Duration) error { return nil })(value)
	default:
		panic(fmt.Sprintf("chat.Limits has a field of type %T, which no value is read into", limit))
	}
}
