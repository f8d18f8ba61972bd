package tmux

import (
	"slices"
	"strconv"
	"strings"
)

// namedKeys are the special keys of tmux(1), "KEY BINDINGS".
var namedKeys = []string{
	"BSpace", "BTab", "DC", "Delete", "Down", "End", "Enter", "Escape", "Home", "IC", "Insert",
	"Left", "NPage", "PageDown", "PgDn", "PageUp", "PgUp", "PPage", "Right", "Space", "Tab", "Up",
}

// KnownKey reports whether name is a key that tmux(1) knows: any of the
// prefixes C-, M-, S- once each, and then a named key, F1 to F12, or one
// printable ASCII character.
func KnownKey(name string) bool {
	for seen := ""; len(name) > 2 && name[1] == '-'; name = name[2:] {
		if !strings.ContainsRune("CMS", rune(name[0])) || strings.ContainsRune(seen, rune(name[0])) {
			return false
		}
		seen += name[:1]
	}
	if len(name) == 1 {
		return name[0] > ' ' && name[0] < 0x7f
	}
	if f, ok := strings.CutPrefix(name, "F"); ok {
		n, err := strconv.Atoi(f)
		return err == nil && n >= 1 && n <= 12 && f == strconv.Itoa(n)
	}
	return slices.Contains(namedKeys, name)
}
