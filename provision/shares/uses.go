package shares

import (
	"fmt"
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/quota"
)

// Uses returns each owner's use of each share, without those that are not used.
func (s *Shares) Uses() []chat.ShareUse {
	chats, uids := map[string]uint64{}, map[string]uint64{}
	for owner, h := range s.Store.Owners() {
		chats[owner], uids[owner] = h.Chats, h.UIDs
	}
	return s.Limits.Uses(map[quota.Share]map[string]uint64{
		quota.Chats: chats, quota.UIDs: uids, quota.Creates: s.creates.Used(),
		quota.Awake: byOwner(s.Awake()), quota.RunBytes: s.RunBytes(),
	})
}

// Findings warns of shares, and of uids and awake chats in total, that are half spent.
func (s *Shares) Findings(uses []chat.ShareUse) []string {
	var awake uint64
	findings := []string{}
	for _, u := range uses {
		if quota.Share(u.Share) == quota.Awake {
			awake += u.Used
		}
		if u.HalfSpent() {
			findings = append(findings, quota.Warning(u))
		}
	}
	all := uint64(s.UIDs.High - s.UIDs.Low + 1)
	if given := uint64(s.Store.Given()); given >= all/2 {
		findings = append(findings, fmt.Sprintf(
			"uids: %d of %d are given, for ever: widen uids before they are spent", given, all))
	}
	findings = append(findings, s.overall(awake)...)
	slices.Sort(findings)
	return findings
}

// Promised is the memory_max of all awake chats together, in bytes.
func (s *Shares) Promised() uint64 { return memory(s.Awake()) }

// overall warns of the bounds on awake chats of all owners, of which there are this many.
func (s *Shares) overall(awake uint64) (findings []string) {
	if held := s.Promised(); s.MaxMemory > 0 && held >= s.MaxMemory/2 {
		findings = append(findings, fmt.Sprintf("max_awake_memory: awake chats have %s of "+
			"memory_max, of at most %s", size(held), size(s.MaxMemory)))
	}
	if max := uint64(s.MaxAwake); max > 0 && awake >= (max+1)/2 {
		findings = append(findings, fmt.Sprintf(
			"max_awake: %d of at most %d chats are awake", awake, max))
	}
	return findings
}
