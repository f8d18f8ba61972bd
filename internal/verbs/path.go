package verbs

import (
	"net/url"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// At is the path of the route for a chat and an object. It refuses names that would make another path.
func (r Route) At(id chat.ID, name string) (string, error) {
	if strings.Contains(r.Path, "{id}") {
		if _, err := chat.ParseID(string(id)); err != nil {
			return "", err
		}
	}
	if strings.Contains(r.Path, "{schedule}") {
		if err := chat.CheckName("schedule", name); err != nil {
			return "", err
		}
	}
	if strings.Contains(r.Path, "{name}") {
		if _, err := chat.ParseArchiveName(name); err != nil {
			return "", err
		}
	}
	noRun := name == "" || len(name) > chat.MaxName || !IsPlain("/"+name)
	if strings.Contains(r.Path, "{run}") && noRun {
		return "", chat.NoRun(id, name)
	}
	name = url.PathEscape(name)
	fill := strings.NewReplacer("{id}", string(id), "{run}", name, "{schedule}", name, "{name}", name)
	return fill.Replace(r.Path), nil
}

// IsPlain reports a path that no route can read in two ways: without an empty part, dots as a part,
// and characters that are ever escaped.
func IsPlain(path string) bool {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("._-", r)
	}
	parts := strings.Split(path, "/")
	if len(parts) < 2 || parts[0] != "" {
		return false
	}
	return !slices.ContainsFunc(parts[1:], func(p string) bool {
		return p == "" || p == "." || p == ".." || strings.ContainsFunc(p, func(r rune) bool {
			return !plain(r)
		})
	})
}
