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

// spelled maps common names of keys to those of tmux(1).
var spelled = map[string]string{
	"backspace": "BSpace", "del": "DC", "delete": "DC", "down": "Down", "end": "End", "enter": "Enter",
	"esc": "Escape", "escape": "Escape", "home": "Home", "ins": "IC", "insert": "IC", "left": "Left",
	"pagedown": "PgDn", "pageup": "PgUp", "pgdn": "PgDn", "pgup": "PgUp", "return": "Enter", "right": "Right",
	"space": "Space", "tab": "Tab", "up": "Up",
	"f1": "F1", "f2": "F2", "f3": "F3", "f4": "F4", "f5": "F5", "f6": "F6",
	"f7": "F7", "f8": "F8", "f9": "F9", "f10": "F10", "f11": "F11", "f12": "F12",
}

// KeyName returns tmux(1)'s name of a key. It accepts that name itself, and common ones in lower
// case, as ctrl-x, alt-x, shift-tab, esc or f1. known is false for any other name.
func KeyName(name string) (key string, known bool) {
	for again := true; again; {
		again = false
		for long, short := range map[string]string{"ctrl-": "C-", "alt-": "M-", "shift-": "S-", "C-": "C-",
			"M-": "M-", "S-": "S-"} {
			if rest, ok := strings.CutPrefix(name, long); ok && rest != "" {
				key, name, again = key+short, rest, true
			}
		}
	}
	if s, ok := spelled[name]; ok {
		name = s
	}
	return key + name, KnownKey(key + name)
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
