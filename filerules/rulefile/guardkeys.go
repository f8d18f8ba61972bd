package rulefile

import (
	"fmt"
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
	if n.kind != kindList {
		l.fault(n.line, at, "want a list of regular expressions, got %s", n.is())
		return nil
	}
	var all []chat.Pattern
	for i, item := range n.items {
		key := fmt.Sprintf("%s[%d]", at, i)
		if item.kind != kindText || item.text == "" || len(item.text) > filerules.MaxPattern {
			l.fault(item.line, key, "want a regular expression (RE2) of 1 to %d bytes, got %s",
				filerules.MaxPattern, item.is())
			continue
		}
		if _, err := regexp.Compile(item.text); err != nil {
			l.fault(item.line, key, "%v: want a regular expression (RE2)", err)
			continue
		}
		all = append(all, chat.Pattern{Text: item.text, Place: l.place(item.line)})
	}
	return all
}
