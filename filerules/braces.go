package filerules

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
)

// braces expands {a,b} before all else, as a shell does.
func braces(s string) ([]string, error) {
	done, todo := []string(nil), []string{s}
	for len(todo) > 0 {
		head := todo[0]
		todo = todo[1:]
		from, parts, to, err := firstBrace(head)
		if err != nil {
			return nil, fmt.Errorf("%w, got %s", err, chat.Quote(s))
		}
		if parts == nil {
			done = append(done, head)
			continue
		}
		if len(done)+len(todo)+len(parts) > maxAlternatives {
			return nil, fmt.Errorf("want braces that stand for at most %d patterns, got %s", maxAlternatives,
				chat.Quote(s))
		}
		var out []string
		for _, p := range parts {
			out = append(out, head[:from]+p+head[to:])
		}
		todo = slices.Concat(out, todo)
	}
	return done, nil
}

// firstBrace finds the first brace and its parts; no parts if there is none.
func firstBrace(s string) (from int, parts []string, to int, err error) {
	depth, begin := 0, 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '[':
			if _, n, err := parseClass(s[i:]); err == nil {
				i += n - 1
			}
		case '{':
			if depth++; depth == 1 {
				from, begin = i, i+1
			}
		case ',':
			if depth == 1 {
				parts = append(parts, s[begin:i])
				begin = i + 1
			}
		case '}':
			if depth == 0 {
				return 0, nil, 0, errors.New(`want { before }, or \}`)
			}
			if depth--; depth > 0 {
				continue
			}
			if parts == nil {
				return 0, nil, 0, errors.New(`want {a,b}, or \{ and \}`)
			}
			return from, append(parts, s[begin:i]), i + 1, nil
		}
	}
	if depth > 0 {
		return 0, nil, 0, errors.New(`want } after {, or \{`)
	}
	return 0, nil, 0, nil
}
