package redact

import (
	"net/http"
	"slices"
	"strings"
)

// Text puts asterisks in the place of each of the texts in s.
func Text(s string, texts []string) string {
	if !slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(s, t) }) {
		return s
	}
	scrub := scrubber{texts: func() []string { return texts }}
	return string(scrub.feed([]byte(s), true))
}

// Header is [Text] for the values of headers. One whose name has a text, in any case, is
// left out.
func Header(h http.Header, texts []string) {
	for name, values := range h {
		if hasFold(name, texts) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = Text(v, texts)
		}
	}
}

// hasFold reports whether s has one of the texts, in any case.
func hasFold(s string, texts []string) bool {
	low := strings.ToLower(s)
	return slices.ContainsFunc(texts, func(t string) bool {
		return strings.Contains(low, strings.ToLower(t))
	})
}
