package chat

import "strings"

// Within reports whether p is dir or below it. Both are clean (path.Clean). It compares text only
// and does not resolve links.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir) && p[len(dir)] == '/'
}
