package configfile

import (
	"cmp"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
	"github.com/chatd/chatd/internal/quota"
)

// otherVariables are not of the config; those that end with _ are prefixes.
var otherVariables = []string{
	"CONFIG", "FAILPOINT", "ARCHIVE_FILE", "TEST_", "ROOTTEST_", "BENCH_", "MACHINE_", "DEMO_",
}

// Variables are what the CHATD_ variables set over a file: the upper-case keys, with _ between them
// and in place of . and -. One that is empty says nothing. A name that stands for no key, or for
// several, is an error.
func Variables(file string, environ []string) (all []Setting, err error) {
	name, text, err := config.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return variablesOver(name, text, environ)
}

// variablesOver is [Variables] of a file that was read.
func variablesOver(name string, text []byte, environ []string) (all []Setting, err error) {
	d, err := newDecoder(name, text)
	if err != nil {
		return nil, err
	}
	top, errs := reflect.ValueOf(d.doc), []error{}
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(line, "=")
		rest, ours := strings.CutPrefix(name, config.VariablePrefix)
		if !ours || value == "" || slices.ContainsFunc(otherVariables, func(other string) bool {
			return rest == other || strings.HasSuffix(other, "_") && strings.HasPrefix(rest, other)
		}) {
			continue
		}
		switch paths := pathsOf(rest, top); len(paths) {
		case 1:
			all = append(all, Setting{paths[0], value, name})
		case 0:
			errs = append(errs,
				chat.Invalid("cannot use %s: no key of the config has that name: did you mean %s%s?",
					chat.Quote(name), config.VariablePrefix, nearest(rest, namesOf(top))))
		default:
			slices.SortFunc(paths, slices.Compare)
			errs = append(errs, chat.Invalid("cannot use %s: it names %s and %s: want them set in a file",
				chat.Quote(name), strings.Join(paths[0], "."), strings.Join(paths[1], ".")))
		}
	}
	return all, errors.Join(errs...)
}

// pathsOf are the keys in v that a variable's name, from there on, may stand for.
func pathsOf(name string, v reflect.Value) (all [][]string) {
	if v.Type() == reflect.TypeFor[map[string]string]() {
		return [][]string{{name}}
	}
	for key, of := range children(v) {
		rest, in := strings.CutPrefix(name, variable(key))
		leaf := kindOf(of.Type()) != "keys"
		if in && rest == "" && leaf {
			all = append(all, []string{key})
		}
		if below, ok := strings.CutPrefix(rest, "_"); in && ok && below != "" && !leaf {
			for _, path := range pathsOf(below, of) {
				all = append(all, append([]string{key}, path...))
			}
		}
	}
	return all
}

// children are the keys in v, with their values.
func children(v reflect.Value) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		switch {
		case v.Kind() == reflect.Pointer:
			children(reflect.New(v.Type().Elem()).Elem())(yield)
		case v.Type() == reflect.TypeFor[quota.Limits]():
			for _, share := range quota.All() {
				if !yield(string(share), reflect.ValueOf(uint64(0))) {
					return
				}
			}
		case v.Kind() == reflect.Map:
			for entries := v.MapRange(); entries.Next(); {
				if !yield(entries.Key().String(), entries.Value()) {
					return
				}
			}
		case v.Kind() == reflect.Struct:
			for _, f := range reflect.VisibleFields(v.Type()) {
				if key := config.KeyOf(f); key != "" && !f.Anonymous && !yield(key, v.FieldByIndex(f.Index)) {
					return
				}
			}
		}
	}
}

// namesOf are the names of the variables for v.
func namesOf(v reflect.Value) (all []string) {
	for key, of := range children(v) {
		if kindOf(of.Type()) != "keys" {
			all = append(all, variable(key))
		}
		for _, below := range namesOf(of) {
			all = append(all, variable(key)+"_"+below)
		}
	}
	return all
}

// nearest is the name with most in common at both ends.
func nearest(name string, all []string) string {
	likeness := func(other string) (n int) {
		shorter := min(len(name), len(other))
		for n < shorter && name[n] == other[n] {
			n++
		}
		for i := 1; n < shorter && name[len(name)-i] == other[len(other)-i]; i++ {
			n++
		}
		return 2*n - len(other)
	}
	return slices.MaxFunc(all, func(a, b string) int {
		return cmp.Or(likeness(a)-likeness(b), strings.Compare(b, a))
	})
}
