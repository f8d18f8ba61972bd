package chat

import "strings"

// Within reports whether p is dir or below it. Both are clean (path.Clean). It goes by
// the letters: what a link leads to is another name.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}
