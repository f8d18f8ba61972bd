package config

import (
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

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
