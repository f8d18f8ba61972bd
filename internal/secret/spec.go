package secret

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
)

// Bounds of a config.
const (
	MaxSecrets = 256
	MaxHosts   = 32 // of a secret
)

// Spec is one secret of the config.
type Spec struct {
	// File has the value. It is root's, and nobody else may read it.
	File string `json:"file"`
	// Hosts may get the value: names with a port.
	Hosts []chat.Allow `json:"hosts"`
	// Header is where they get it.
	Header Header `json:"header"`
	// Env is the variable in which chats have their placeholder.
	Env string `json:"env"`
}

// Validate reports the first invalid field, with its key.
func (s Spec) Validate() (key string, err error) {
	if !filepath.IsAbs(s.File) || strings.ContainsAny(s.File, "\x00\n") {
		return "file", chat.Invalid("%s: want an absolute path", chat.Quote(s.File))
	}
	if len(s.Hosts) == 0 || len(s.Hosts) > MaxHosts {
		return "hosts", chat.Invalid("%d entries: want 1 to %d", len(s.Hosts), MaxHosts)
	}
	for i, a := range s.Hosts {
		if !a.Named() || a.UDP || a.NoSNI || a.Low != a.High {
			return fmt.Sprintf("hosts[%d]", i), chat.Invalid("%s: want NAME:PORT of TCP", a)
		}
	}
	if s.Header.name == "" {
		return "header", headerError("", "it has no name")
	}
	if s.Env == "" {
		return "env", chat.Invalid("want the name of a variable")
	}
	if _, err := chat.CheckEnv(map[string]string{s.Env: Prefix}); err != nil {
		return "env", fmt.Errorf("%s: %w", chat.Quote(s.Env), err)
	}
	return "", nil
}

// IsFor reports whether a host, in the form of [chat.CheckHost], may get the secret on a port.
func (s Spec) IsFor(host string, port uint16) bool {
	return slices.ContainsFunc(s.Hosts, func(a chat.Allow) bool {
		return a.OpensPort(false, port) && a.MatchesHost(host)
	})
}

// Check reports the first secret that a profile names and cannot use.
func Check(p chat.Profile, specs map[string]Spec) error {
	envs := map[string]string{}
	for i, name := range p.Secrets {
		s, known := specs[name]
		_, set := p.Env[s.Env]
		var why string
		switch other := envs[s.Env]; {
		case !known:
			why = "want a key of secrets"
		case other != "":
			why = fmt.Sprintf("its variable %s is that of %s too", s.Env, other)
		case set:
			why = fmt.Sprintf("its variable %s is set by env of the profile", s.Env)
		case !slices.ContainsFunc(s.Hosts, func(h chat.Allow) bool { return opens(p.Egress, h) }):
			why = "egress opens none of its hosts"
		}
		if why != "" {
			return chat.Invalid("secrets[%d] %s: %s", i, chat.Quote(name), why)
		}
		envs[s.Env] = name
	}
	return nil
}

// opens reports whether the list opens some of the names and the port of h.
func opens(list []chat.Allow, h chat.Allow) bool {
	return slices.ContainsFunc(list, func(a chat.Allow) bool {
		return a.OpensPort(false, h.Low) && (a.CoversHost(h) || h.CoversHost(a))
	})
}
