package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/secret"
)

// secrets checks the secrets, and the profiles that name them. Their files are root's to read, when
// chatd starts.
func (d *decoder) secrets() {
	if n := len(d.doc.Secrets); n > secret.MaxSecrets {
		d.fault("secrets", fmt.Errorf("%d: want at most %d: %w", n, secret.MaxSecrets, chat.ErrInvalid))
	}
	for _, name := range slices.Sorted(maps.Keys(d.doc.Secrets)) {
		at := "secrets." + name
		d.fault(at, chat.CheckName("secret", name))
		if !d.faulty(at) {
			key, err := d.doc.Secrets[name].Validate()
			d.fault(at+"."+key, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.doc.Profiles)) {
		d.fault("profiles."+name+".secrets", secret.Check(d.doc.Profiles[name], d.doc.Secrets))
	}
}
