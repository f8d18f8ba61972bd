package filerules

import (
	"regexp"
	"slices"
	"sync"
)

// None is the policy of a profile without a file of rules: it denies nothing. The language's
// defaults are off: in a chat's home, .env is the chat's own file.
var None = sync.OnceValue(func() *Policy {
	p, err := New(Policy{Name: BuiltIn, Mode: DenyWins})
	if err != nil {
		panic(err) // a constant of this file
	}
	return p
})

// secretNames are names of files and directories that usually hold secrets.
var secretNames = []string{".env", "secrets/**", ".ssh/**", ".gnupg/**"}

// Shipped is the policy of a profile with defaults and without a file: it denies secret names
// directly below the home, the given paths, and secret names anywhere below the given places. A
// place and a path are absolute, or begin with ~/. It denies nothing in trees that a chat makes.
func Shipped(places, paths []string) (*Policy, error) {
	p := Policy{Name: BuiltIn, Mode: DenyWins}
	deny := func(pattern string, globs ...string) {
		p.Global.Deny = append(p.Global.Deny, Rule{
			Effect: Deny, Pattern: pattern, Globs: globs, Ops: All, Layer: LayerDefaults, Place: BuiltIn,
		})
	}
	for _, glob := range []string{"~/.ssh/**", "~/.gnupg/**", "~/.env", "~/secrets/**"} {
		deny(glob, glob)
	}
	for _, place := range places {
		below := EscapeGlob(place) + "/**/"
		var globs []string
		for _, name := range secretNames {
			globs = append(globs, below+name)
		}
		deny(below+"{.env,secrets/**,.ssh/**,.gnupg/**}", globs...)
	}
	for _, path := range slices.Concat(places, paths) {
		if IsSecret(path) {
			deny(EscapeGlob(path), EscapeGlob(path))
		}
	}
	return New(p)
}

var secretPath = regexp.MustCompile(`(^|/)((secrets|\.ssh|\.gnupg)(/|$)|\.env$)`)

// IsSecret reports whether a name in a path usually holds secrets.
func IsSecret(p string) bool { return secretPath.MatchString(p) }
