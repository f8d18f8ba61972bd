package rulefile

import (
	"regexp"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// guard reads the guard section: the keys of chat.Guard. Package guard uses them.
func (l *loader) guard(n node, at string) {
	g := chat.DefaultGuard()
	g.Place = l.place(n.line)
	restrict := false
	l.mapping(n, at, map[string]func(node, string){
		"preset": func(n node, at string) {
			l.word(n, at, func(w string) {
				g.Preset = chat.GuardPreset(w)
			}, string(chat.GuardDefault), string(chat.GuardPicoClaw), string(chat.GuardNone))
		},
		"enable_deny_patterns": func(n node, at string) { g.EnableDenyPatterns = l.flag(n, at) },
		"restrict_to_workspace": func(n node, at string) {
			g.RestrictToWorkspace, restrict = l.flag(n, at), true
		},
		"custom_deny_patterns":  func(n node, at string) { g.CustomDenyPatterns = l.expressions(n, at) },
		"custom_allow_patterns": func(n node, at string) { g.CustomAllowPatterns = l.expressions(n, at) },
	}, "preset, enable_deny_patterns, restrict_to_workspace, custom_deny_patterns, custom_allow_patterns")
	if !restrict {
		g.RestrictToWorkspace = g.Preset == chat.GuardPicoClaw
	}
	l.policy.Guard, l.policy.GuardPlaces = &g, g.Places()
}

func (l *loader) flag(n node, at string) bool {
	if n.kind != kindBool {
		l.fault(n.line, at, "want true or false, got %s", n.is())
	}
	return n.flag
}

func (l *loader) expressions(n node, at string) []chat.Pattern {
	return listOf(l, n, at, "regular expressions", func(n node, at string) (p chat.Pattern, ok bool) {
		if n.kind != kindText || n.text == "" || len(n.text) > filerules.MaxPattern {
			l.fault(n.line, at, "want a regular expression (RE2) of 1 to %d bytes, got %s",
				filerules.MaxPattern, n.is())
			return p, false
		}
		if _, err := regexp.Compile(n.text); err != nil {
			l.fault(n.line, at, "%v: want a regular expression (RE2)", err)
			return p, false
		}
		return chat.Pattern{Text: n.text, Place: l.place(n.line)}, true
	})
}
