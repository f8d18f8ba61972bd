package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// defaultsName is the embedded file's name in errors.
const defaultsName = "defaults.yaml"

// fileGuard is a profile's guard as it is written.
type fileGuard struct {
	Preset              string   `yaml:"preset"`
	EnableDenyPatterns  string   `yaml:"enable_deny_patterns"`
	CustomDenyPatterns  []string `yaml:"custom_deny_patterns"`
	CustomAllowPatterns []string `yaml:"custom_allow_patterns"`
	RestrictToWorkspace string   `yaml:"restrict_to_workspace"`
}

// guard reads the keys of a guard. A profile without any has base's. A profile with some gets
// PicoClaw's defaults for the rest: patterns are on, and the workspace is enforced under PicoClaw's
// preset.
func (f *faults) guard(g *fileGuard, base chat.Guard) chat.Guard {
	if g == nil {
		base.Place = ""
		return base
	}
	out := chat.DefaultGuard()
	if f.name != defaultsName {
		out.Place = fmt.Sprintf("%s:%d", f.name, f.line(f.at+"guard"))
	}
	f.read("guard.preset", g.Preset, oneOf(&out.Preset, chat.GuardPresets()...))
	out.RestrictToWorkspace = out.Preset == chat.GuardPicoClaw
	f.read("guard.enable_deny_patterns", g.EnableDenyPatterns, boolean(&out.EnableDenyPatterns))
	f.read("guard.restrict_to_workspace", g.RestrictToWorkspace, boolean(&out.RestrictToWorkspace))
	out.CustomDenyPatterns = f.patterns("guard.custom_deny_patterns", g.CustomDenyPatterns)
	out.CustomAllowPatterns = f.patterns("guard.custom_allow_patterns", g.CustomAllowPatterns)
	return out
}

// patterns reads a list of regular expressions, each with its line.
func (f *faults) patterns(key string, list []string) (all []chat.Pattern) {
	for i, text := range list {
		one := fmt.Sprintf("%s[%d]", key, i)
		_, err := (chat.Pattern{Text: text}).Compile()
		f.add(one, err)
		all = append(all, chat.Pattern{Text: text, Place: fmt.Sprintf("%s:%d", f.name, f.line(f.at+one))})
	}
	return all
}

// readOnly in tools_off stands for every tool that can write.
const readOnly = "readonly"

// writers are those tools: a command and a terminal can write whatever the chat may.
func writers() []string {
	return []string{
		chat.ToolExec, chat.ToolTerminal, chat.ToolWriteFile, chat.ToolEditFile, chat.ToolAppendFile,
	}
}

func (f *faults) toolsOff(list []string) (all []string) {
	for i, t := range list {
		if t == readOnly {
			all = append(all, writers()...)
			continue
		}
		if err := oneOf(&t, append(chat.Tools(), readOnly)...)(t); err != nil {
			f.add(fmt.Sprintf("tools_off[%d]", i), err)
			continue
		}
		all = append(all, t)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// adoptGuard gives a profile the guard of its file of rules; only one of the two may have the keys.
func adoptGuard(cfg Config, name string, policy *filerules.Policy) error {
	p := cfg.Profiles[name]
	if policy == nil || policy.Guard == nil {
		return nil
	}
	if p.Guard.Place != "" {
		return fmt.Errorf("cannot use the guard of profile %s: it stands at %s and at %s: want one: %w", name, p.Guard.Place, policy.Guard.Place, chat.ErrInvalid)
	}
	p.Guard = *policy.Guard
	cfg.Profiles[name] = p
	return nil
}

// join formats a list of words for a message.
func join[S ~string](list []S) string {
	var words []string
	for _, w := range list {
		words = append(words, string(w))
	}
	return strings.Join(words, ", ")
}
