package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
)

// ReadRules reads a file of rules.
func ReadRules(file string) (*filerules.Policy, error) {
	text, err := readText(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the policy: %w: %w", err, chat.ErrInvalid)
	}
	return rulefile.Load(file, text)
}

// Rules reads the file of rules of each profile that names one; a profile with only defaults has
// those of [shippedRules].
func (cfg Config) Rules() (map[string]*filerules.Policy, error) {
	policies := map[string]*filerules.Policy{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		file := cfg.Profiles[name].AccessFile
		if file == "" {
			if cfg.Profiles[name].Defaults {
				policy, err := shippedRules(cfg.Profiles[name])
				if err != nil {
					errs = append(errs, fmt.Errorf("cannot make the default rules of profile %s: %w", name, err))
				}
				policies[name] = policy
			}
			continue
		}
		policy, err := ReadRules(file)
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

// maxTextFile bounds a file of rules or of config before it is parsed, in bytes.
const maxTextFile = 4 << 20

// readText reads a regular file of at most [maxTextFile] bytes. Reading a FIFO could block forever,
// and a device may have no end.
func readText(name string) ([]byte, error) {
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
