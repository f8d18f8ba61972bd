package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
	"github.com/chatd/chatd/internal/secret"
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

// checkSecrets checks the secrets, and the profiles that name them. Their files are root's to read, when
// chatd starts.
func (cfg *Config) checkSecrets(f *Faults) {
	if n := len(cfg.Secrets); n > secret.MaxSecrets {
		f.Add("secrets", chat.Invalid("%d: want at most %d", n, secret.MaxSecrets))
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Secrets)) {
		at := "secrets." + name
		f.Add(at, chat.CheckName("secret", name))
		if !f.Faulty(at) {
			key, err := cfg.Secrets[name].Validate()
			f.Add(at+"."+key, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		f.Add("profiles."+name+".secrets", secret.Check(cfg.Profiles[name], cfg.Secrets))
	}
}

// MaxStreams is the share of streams for the API, where 0 means its default.
func (cfg Config) MaxStreams() int {
	if n := cfg.OwnerShares[quota.Streams]; n > 0 {
		return int(n)
	}
	return 1 << 31
}

// checkMemory refuses a max_awake_memory that has no room for one chat of the default profile.
func (cfg *Config) checkMemory(f *Faults) {
	least, most := cfg.Profiles[chat.DefaultProfile].Limits.MemoryMax, cfg.MaxAwakeMemory
	if most != 0 && most < least {
		f.Add("max_awake_memory", chat.Invalid("%d: no chat could wake: want 0, for no bound, "+
			"or at least memory_max of profile %s, %d", most, chat.DefaultProfile, least))
	}
}

// CheckViews calls check for each profile, to examine on the host the paths that it opens, and adds
// file and line to the errors.
func (cfg Config) CheckViews(check func(Config, chat.Profile) (key string, err error)) error {
	found := Faults{Places: cfg.Places} // a fault in a rule for all profiles is one of each
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		key, err := check(cfg, cfg.Profiles[name])
		key = "profiles." + name + "." + key
		end := strings.Index(key, "]") + 1
		if rule, ok := cfg.Written[key[:end]]; ok {
			key = rule + key[end:]
		}
		found.Add(key, err)
	}
	return found.Err()
}

// OperatorsOnly lists the profiles in which no bridge may create a chat.
func (cfg Config) OperatorsOnly() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Profiles)) {
		if len(cfg.Profiles[name].AdmittedBridges()) == 0 {
			names = append(names, name)
		}
	}
	return names
}
