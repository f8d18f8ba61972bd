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
		spec, err := s.secret("secrets."+name, name, s.file.Secrets[name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if cfg.Secrets == nil {
			cfg.Secrets = map[string]secret.Spec{}
		}
		cfg.Secrets[name] = spec
	}
	return errors.Join(errs...)
}

func (s source) secret(at, name string, f fileSecret) (spec secret.Spec, err error) {
	if err := chat.CheckName("secret", name); err != nil {
		return spec, s.fault(at, err)
	}
	spec = secret.Spec{File: f.File, Env: f.Env}
	if spec.Hosts, err = s.allows(at+".hosts", f.Hosts); err != nil {
		return spec, err
	}
	if spec.Header, err = secret.ParseHeader(f.Header); err != nil {
		return spec, s.fault(at+".header", err)
	}
	if key, err := spec.Validate(); err != nil {
		return spec, s.fault(at+"."+key, err)
	}
	return spec, nil
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
