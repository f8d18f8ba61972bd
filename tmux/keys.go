package tmux

import (
	"slices"
	"strings"
)

// namedKeys are the special keys of tmux(1), "KEY BINDINGS".
var namedKeys = []string{
	"BSpace", "BTab", "DC", "Delete", "Down", "End", "Enter", "Escape", "Home", "IC", "Insert",
	"Left", "NPage", "PageDown", "PgDn", "PageUp", "PgUp", "PPage", "Right", "Space", "Tab", "Up",
	"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10", "F11", "F12",
}

// spelled maps common names of keys to those of tmux(1), where these are not theirs in lower case.
var spelled = map[string]string{
	"backspace": "BSpace", "del": "DC", "delete": "DC", "esc": "Escape", "ins": "IC", "insert": "IC",
	"pagedown": "PgDn", "pageup": "PgUp", "return": "Enter",
}

// modifiers are what may be before a key's name and a "-", each once.
var modifiers = map[string]string{
	"ctrl": "C-", "alt": "M-", "shift": "S-", "C": "C-", "M": "M-", "S": "S-",
}

// KeyName returns tmux(1)'s name of a key: a special one, F1 to F12, or one printable ASCII
// character, behind any of the modifiers. It accepts that name itself, and common ones in lower
// case, as ctrl-x, alt-x, shift-tab, esc or f1. known is false for any other name.
func KeyName(name string) (key string, known bool) {
	for {
		head, rest, _ := strings.Cut(name, "-")
		m := modifiers[head]
		if m == "" || rest == "" {
			break
		}
		if strings.Contains(key, m) {
			return key, false
		}
		key, name = key+m, rest
	}
	if len(name) == 1 {
		return key + name, name[0] > ' ' && name[0] < 0x7f
	}
	if s, ok := spelled[name]; ok {
		return key + s, true
	}
	i := slices.IndexFunc(namedKeys, func(k string) bool { return k == name || strings.ToLower(k) == name })
	if i < 0 {
		return key + name, false
	}
	return key + namedKeys[i], true
}
