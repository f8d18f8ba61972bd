package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
)

// Rules are the file rules of each profile: read of its file, if it names one; a profile with only
// defaults has those of [shippedRules].
func (cfg Config) Rules(
	read func(file string) (*filerules.Policy, error),
) (map[string]*filerules.Policy, error) {
	policies := map[string]*filerules.Policy{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		file := cfg.Profiles[name].AccessFile
		if file == "" {
			if cfg.Profiles[name].Defaults {
				policy, err := shippedRules(cfg.Profiles[name])
				if err != nil {
					errs = append(errs,
						fmt.Errorf("cannot make the default rules of profile %s: %w", name, err))
				}
				policies[name] = policy
			}
			continue
		}
		policy, err := read(file)
		if err != nil {
			errs = append(errs, fmt.Errorf("cannot use the rules of profile %s: %w", name, err))
		}
		policies[name] = policy
		if err := adoptGuard(cfg, name, policy); err != nil {
			errs = append(errs, err)
		}
	}
	return policies, errors.Join(errs...)
}

// ReadFile reads the config file, and returns what it is called; empty is [File], which need not be
// there: the text is nil then.
func ReadFile(file string) (name string, text []byte, err error) {
	name = cmp.Or(file, File)
	text, err = ReadText(name)
	if file == "" && errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	if err != nil {
		return name, nil, chat.Invalid("cannot read the config: %w", err)
	}
	return name, text, nil
}

// maxTextFile bounds a file of rules or of config before it is parsed, in bytes.
const maxTextFile = 4 << 20

// ReadText reads a regular file of at most [maxTextFile] bytes. Reading a FIFO could block forever,
// and a device may have no end.
func ReadText(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: its mode is %s, want a regular file", chat.Quote(name), fi.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTextFile+1))
	if err == nil && len(text) > maxTextFile {
		err = fmt.Errorf("%s: it has more than %d bytes", chat.Quote(name), maxTextFile)
	}
	return text, err
}

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
