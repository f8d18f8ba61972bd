package filerules

import (
	"encoding/json"
	"regexp"
	"slices"
)

// secretNames are names of files and directories that usually hold secrets.
const secretNames = "{.env,secrets/**,.ssh/**,.gnupg/**}"

// Shipped is the policy of a profile with defaults and without a file: it denies secret names
// directly below the home, the given paths, and secret names anywhere below the given places. A
// place and a path are absolute, or begin with ~/. It denies nothing in trees that a chat makes.
func Shipped(places, paths []string) (*Policy, error) {
	deny := []string{"~/.ssh/**", "~/.gnupg/**", "~/.env", "~/secrets/**"}
	for _, p := range places {
		deny = append(deny, EscapeGlob(p)+"/**/"+secretNames)
	}
	for _, p := range slices.Concat(places, paths) {
		if IsSecret(p) {
			deny = append(deny, EscapeGlob(p))
		}
	}
	text, err := json.Marshal(map[string]any{"access": map[string]any{
		"useDefaults": false, "deny": deny,
	}})
	if err != nil {
		return nil, err
	}
	return Load(builtIn, text)
}

var secretPath = regexp.MustCompile(`(^|/)((secrets|\.ssh|\.gnupg)(/|$)|\.env$)`)

// IsSecret reports whether a name in a path usually holds secrets.
func IsSecret(p string) bool { return secretPath.MatchString(p) }
