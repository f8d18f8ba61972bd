package config

import (
	"path/filepath"
	"slices"
	"strings"

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

// checkArchive checks the key archive.
func (cfg *Config) checkArchive(f *Faults) {
	if a := cfg.Archive; a != nil {
		if a.Dir == "" {
			f.Add("archive.dir", absolute(&a.Dir, ""))
		}
		key, err := checkArchiveCommand(*a)
		f.Add("archive."+key, err)
	}
}

// checkArchiveCommand checks the command and its user, which must be named: it need not be root.
func checkArchiveCommand(a Archive) (key string, err error) {
	switch {
	case len(a.Command) == 0 && a.User != "":
		return "user", chat.Invalid("there is no command that runs as it")
	case len(a.Command) == 0:
		return "", nil
	case !filepath.IsAbs(a.Command[0]) || slices.ContainsFunc(a.Command, func(w string) bool {
		return strings.ContainsRune(w, 0)
	}):
		return "command", chat.Invalid("%s: want an absolute path and arguments", chat.Quote(a.Command[0]))
	case a.User == "":
		return "command", chat.Invalid("want archive.user too, the name of the user that it runs as")
	}
	return "", nil
}

// checkReap refuses a profile whose chats would be reaped without an archive, and that does not say
// so.
func (cfg *Config) checkReap(f *Faults, p chat.Profile) {
	if p.ReapAfter != 0 && !p.ReapWithoutArchive && cfg.Archive == nil {
		f.Add("profiles."+p.Name+".reap_after", chat.Invalid("chats of profile %s would be gone: want the "+
			"key archive, with a dir, or reap_without_archive: true", p.Name))
	}
}
