package config

import (
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
)

// fileShares is owner_shares as it is written: one owner's limit of each share.
type fileShares struct {
	Chats    string `yaml:"chats"`
	Creates  string `yaml:"creates"`
	Awake    string `yaml:"awake"`
	Streams  string `yaml:"streams"`
	RunBytes string `yaml:"run_bytes"`
	UIDs     string `yaml:"uids"`
}

// shareFields are the keys of owner_shares.
func shareFields(cfg *Config) []field {
	of := map[quota.Share]func(*fileShares) string{
		quota.Chats:    func(f *fileShares) string { return f.Chats },
		quota.Creates:  func(f *fileShares) string { return f.Creates },
		quota.Awake:    func(f *fileShares) string { return f.Awake },
		quota.Streams:  func(f *fileShares) string { return f.Streams },
		quota.RunBytes: func(f *fileShares) string { return f.RunBytes },
		quota.UIDs:     func(f *fileShares) string { return f.UIDs },
	}
	var all []field
	for _, s := range quota.All() {
		all = append(all, field{s.Key(), func(f *fileConfig) string { return of[s](&f.OwnerShares) }, ownerShare(cfg, s)})
	}
	return all
}

// ownerShare reads one of them: a size for a share in bytes, or else a number.
func ownerShare(cfg *Config, s quota.Share) func(string) error {
	return func(text string) error {
		n, err := ParseSize(text)
		if err == nil && s != quota.RunBytes && n > 1<<31 {
			err = fmt.Errorf("%s: want 0, for no bound, to %d: %w", chat.Quote(text), 1<<31, chat.ErrInvalid)
		}
		cfg.OwnerShares[s] = n
		return err
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
func checkMemory(cfg Config, sources []source) error {
	least := cfg.Profiles[chat.DefaultProfile].Limits.MemoryMax
	if cfg.MaxAwakeMemory == 0 || cfg.MaxAwakeMemory >= least {
		return nil
	}
	var s source
	for _, s = range slices.Backward(sources) {
		if s.file.MaxAwakeMemory != "" {
			break
		}
	}
	return s.fault("max_awake_memory", fmt.Errorf("%d: no chat could wake: want 0, for no bound, "+
		"or at least memory_max of profile %s, %d: %w", cfg.MaxAwakeMemory, chat.DefaultProfile,
		least, chat.ErrInvalid))
}
