package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/secret"
)

// fileSecret is one secret, as it is written.
type fileSecret struct {
	File   string   `yaml:"file"`
	Hosts  []string `yaml:"hosts"`
	Header string   `yaml:"header"`
	Env    string   `yaml:"env"`
}

// secrets copies the secrets of s into cfg. Their files are root's to read, when chatd starts.
func (s source) secrets(cfg *Config) error {
	var errs []error
	if len(s.file.Secrets) > secret.MaxSecrets {
		err := fmt.Errorf("%d: want at most %d: %w", len(s.file.Secrets), secret.MaxSecrets,
			chat.ErrInvalid)
		return s.fault("secrets", err)
	}
	for _, name := range slices.Sorted(maps.Keys(s.file.Secrets)) {
		bad := faults{source: s, at: "secrets." + name}
		spec := bad.secret(name, s.file.Secrets[name])
		errs = append(errs, bad.all...)
		if cfg.Secrets == nil {
			cfg.Secrets = map[string]secret.Spec{}
		}
		cfg.Secrets[name] = spec
	}
	return errors.Join(errs...)
}

func (f *faults) secret(name string, from fileSecret) (spec secret.Spec) {
	f.add("", chat.CheckName("secret", name))
	f.at += "."
	spec = secret.Spec{File: from.File, Env: from.Env, Hosts: f.allows("hosts", from.Hosts)}
	var err error
	spec.Header, err = secret.ParseHeader(from.Header)
	f.add("header", err)
	if len(f.all) == 0 {
		key, err := spec.Validate()
		f.add(key, err)
	}
	return spec
}

// checkSecrets reports the profiles that name secrets which they cannot use.
func checkSecrets(cfg Config, sources []source) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		p := cfg.Profiles[name]
		if err := secret.Check(p, cfg.Secrets); err != nil {
			s, at := placeOf(sources, p, "secrets")
			errs = append(errs, s.fault(at, err))
		}
	}
	return errors.Join(errs...)
}
