package config

import (
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
)

// checkSecrets checks the secrets, and the profiles that name them. Their files are root's to read, when
// chatd starts.
func (cfg *Config) checkSecrets(f *Faults) {
	if n := len(cfg.Secrets); n > secret.MaxSecrets {
		f.Add("secrets", chat.Invalid("%d: want at most %d", n, secret.MaxSecrets))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Secrets)) {
		at := "secrets." + name
		f.Add(at, chat.CheckName("secret", name))
		if !f.Faulty(at) {
			key, err := cfg.Secrets[name].Validate()
			f.Add(at+"."+key, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		f.Add("profiles."+name+".secrets", secret.Check(cfg.Profiles[name], cfg.Secrets))
	}
}
