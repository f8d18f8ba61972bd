package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// Archive says where archives of chats are kept. Paths are absolute.
type Archive struct {
	Dir string `json:"dir"`
	// Command gets each file on its standard input, as User; without it the files stay in Dir.
	Command []string `json:"command"`
	User    string   `json:"user"`
	// Recipients and Identities are files of age keys.
	Recipients string `json:"recipients"`
	Identities string `json:"identities"`
	// ExpireAfter is for how long archives are kept; zero is for ever.
	ExpireAfter chat.Duration `json:"expire_after"`
	// Program is chatd-archive.
	Program string `json:"program"`
}

// fileArchive is the key archive, as it is written.
type fileArchive struct {
	Dir         string   `yaml:"dir"`
	Command     []string `yaml:"command"`
	User        string   `yaml:"user"`
	Recipients  string   `yaml:"recipients"`
	Identities  string   `yaml:"identities"`
	ExpireAfter string   `yaml:"expire_after"`
	Program     string   `yaml:"program"`
}

// archive copies the key archive of s into cfg.
func (s source) archive(cfg *Config) error {
	f := s.file.Archive
	if f == nil {
		return nil
	}
	a, bad := Archive{Command: f.Command, User: f.User}, faults{source: s, at: "archive."}
	bad.add("dir", dir(&a.Dir)(f.Dir))
	bad.read("recipients", f.Recipients, dir(&a.Recipients))
	bad.read("identities", f.Identities, dir(&a.Identities))
	bad.read("program", f.Program, dir(&a.Program))
	bad.read("expire_after", f.ExpireAfter, age(&a.ExpireAfter, checkLongAge))
	bad.add(checkArchiveCommand(a))
	if a.Program == "" {
		a.Program = FindProgram("chatd-archive")
	}
	cfg.Archive = &a
	return errors.Join(bad.all...)
}

// checkArchiveCommand checks the command and its user, which must be named: it need not be root.
func checkArchiveCommand(a Archive) (key string, err error) {
	switch {
	case len(a.Command) == 0 && a.User != "":
		return "user", fmt.Errorf("there is no command that runs as it: %w", chat.ErrInvalid)
	case len(a.Command) == 0:
		return "", nil
	case !filepath.IsAbs(a.Command[0]) || slices.ContainsFunc(a.Command, func(w string) bool {
		return strings.ContainsRune(w, 0)
	}):
		return "command", fmt.Errorf("%s: want an absolute path and arguments: %w",
			chat.Quote(a.Command[0]), chat.ErrInvalid)
	case a.User == "":
		return "command", fmt.Errorf(
			"want archive.user too, the name of the user that it runs as: %w", chat.ErrInvalid)
	}
	return "", nil
}

// shortestLongAge is the least time after which something is removed for good: 30s is a slip for
// 30d.
const shortestLongAge = time.Hour

// checkLongAge checks a time after which something is removed.
func checkLongAge(d chat.Duration) error {
	if d != 0 && d.D() < shortestLongAge {
		return fmt.Errorf("%s: want 0, for never, or at least %s: %w", chat.Quote(d.String()), shortestLongAge, chat.ErrInvalid)
	}
	return nil
}

// checkReaps reports the profiles whose chats would be reaped without an archive, and do not say
// so.
func checkReaps(cfg Config, sources []source) error {
	var errs []error
	for name, p := range cfg.Profiles {
		if p.ReapAfter == 0 || p.ReapWithoutArchive || cfg.Archive != nil {
			continue
		}
		s, at := placeOf(sources, p, "reap_after")
		errs = append(errs, s.fault(at, fmt.Errorf("chats of profile %s would be gone: want the "+
			"key archive, with a dir, or reap_without_archive: true: %w", name, chat.ErrInvalid)))
	}
	return errors.Join(errs...)
}
