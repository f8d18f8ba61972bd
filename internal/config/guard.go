package config

import (
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// adoptGuard gives a profile the guard of its file of rules; only one of the two may have the keys.
func adoptGuard(cfg Config, name string, policy *filerules.Policy) error {
	p := cfg.Profiles[name]
	if policy == nil || policy.Guard == nil {
		return nil
	}
	if p.Guard.Place != "" {
		return chat.Invalid("cannot use the guard of profile %s: it stands at %s and at %s: want one", name,
			p.Guard.Place, policy.Guard.Place)
	}
	p.Guard = *policy.Guard
	cfg.Profiles[name] = p
	return nil
}

// Words formats a list of words for a message.
func Words[S ~string](list []S) string {
	var words []string
	for _, w := range list {
		words = append(words, string(w))
	}
	return strings.Join(words, ", ")
}
