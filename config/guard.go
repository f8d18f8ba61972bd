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
func (s source) guard(at string, f *fileGuard, base chat.Guard) (chat.Guard, error) {
	if f == nil {
		base.Place = ""
		return base, nil
	}
	g := chat.DefaultGuard()
	if s.name != defaultsName {
		g.Place = fmt.Sprintf("%s:%d", s.name, s.line(at))
	}
	if f.Preset != "" {
		g.Preset = chat.GuardPreset(f.Preset)
	}
	if !slices.Contains(chat.GuardPresets(), g.Preset) {
		return g, s.fault(at+".preset", fmt.Errorf("%s: want one of %s: %w", chat.Quote(f.Preset), join(chat.GuardPresets()), chat.ErrInvalid))
	}
	g.RestrictToWorkspace = g.Preset == chat.GuardPicoClaw
	for _, b := range []struct {
		key, text string
		to        *bool
	}{{"enable_deny_patterns", f.EnableDenyPatterns, &g.EnableDenyPatterns}, {"restrict_to_workspace", f.RestrictToWorkspace, &g.RestrictToWorkspace}} {
		if b.text == "" {
			continue
		}
		if err := boolean(b.to)(b.text); err != nil {
			return g, s.fault(at+"."+b.key, err)
		}
	}
	var err error
	if g.CustomDenyPatterns, err = s.patterns(at+".custom_deny_patterns", f.CustomDenyPatterns); err != nil {
		return g, err
	}
	g.CustomAllowPatterns, err = s.patterns(at+".custom_allow_patterns", f.CustomAllowPatterns)
	return g, err
}

// patterns reads a list of regular expressions, each with its line.
func (s source) patterns(at string, list []string) ([]chat.Pattern, error) {
	var all []chat.Pattern
	for i, text := range list {
		key := fmt.Sprintf("%s[%d]", at, i)
		if _, err := (chat.Pattern{Text: text}).Compile(); err != nil {
			return nil, s.fault(key, err)
		}
		all = append(all, chat.Pattern{Text: text, Place: fmt.Sprintf("%s:%d", s.name, s.line(key))})
	}
	return all, nil
}

// readOnly in tools_off stands for every tool that can write.
const readOnly = "readonly"

// writers are those tools: a command and a terminal can write whatever the chat may.
func writers() []string {
	return []string{
		chat.ToolExec, chat.ToolTerminal, chat.ToolWriteFile, chat.ToolEditFile, chat.ToolAppendFile,
	}
}

func (s source) toolsOff(at string, list []string) (all []string, err error) {
	for i, t := range list {
		if t == readOnly {
			all = append(all, writers()...)
			continue
		}
		if !slices.Contains(chat.Tools(), t) {
			return nil, s.fault(fmt.Sprintf("%s[%d]", at, i), fmt.Errorf("%s: want one of %s: %w", chat.Quote(t), join(append(chat.Tools(), readOnly)), chat.ErrInvalid))
		}
		all = append(all, t)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
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
