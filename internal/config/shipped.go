package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// shippedRules are the rules of a profile with defaults: they close secret names directly below the
// home, in what the profile exposes, and in its skeleton.
func shippedRules(p chat.Profile) (*filerules.Policy, error) {
	var places []string
	for _, e := range p.ExposePaths {
		places = append(places, e.At())
	}
	grants, _, err := p.Grants()
	if err != nil {
		return nil, err
	}
	for _, g := range grants {
		if !g.Own {
			places = append(places, cmp.Or(g.Path, g.Dir))
		}
	}
	copied, err := secretsIn(p.Skeleton)
	if err != nil {
		return nil, fmt.Errorf("cannot look for secrets in the skeleton: %w", err)
	}
	return filerules.Shipped(places, copied)
}

// secretsIn are the secret names in a skeleton, as they are in a home. A directory stands for what
// is in it.
func secretsIn(skeleton string) (paths []string, err error) {
	if skeleton == "" {
		return nil, nil
	}
	err = fs.WalkDir(os.DirFS(skeleton), ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && p == ".":
			return nil // a create says so
		case err != nil || !filerules.IsSecret(p):
			return err
		case strings.Contains(p, "/"): // else it lies directly below the home
			paths = append(paths, "~/"+p)
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return paths, err
}
