package config

import (
	"fmt"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/quota"
)

// shareFields are the keys of owner_shares, each of one owner's limit: a size for a share in bytes, or
// else a number.
func shareFields(cfg *Config) (all []field) {
	for _, s := range quota.All() {
		n := new(uint64)
		read := size(n, func(n uint64) bool { return s == quota.RunBytes || n <= 1<<31 },
			fmt.Sprintf("0, for no bound, to %d", 1<<31))
		all = append(all, field{s.Key(), func(f *fileConfig) string { return f.OwnerShares[s] },
			func(text string) error {
				err := read(text)
				cfg.OwnerShares[s] = *n
				return err
			}})
	}
	return all
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
	return faultIn(sources, "max_awake_memory", fmt.Errorf("%d: no chat could wake: want 0, for no bound, "+
		"or at least memory_max of profile %s, %d: %w", cfg.MaxAwakeMemory, chat.DefaultProfile,
		least, chat.ErrInvalid))
}
