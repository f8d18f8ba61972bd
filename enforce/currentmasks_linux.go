package enforce

import (
	"slices"

	"github.com/chatd/chatd/enforce/masks"
	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/sys"
)

// currentMasks are the places that have a mask now. By the same rules each mask stays. A file that
// was renamed or moved during a walk may be missed by it. Without its mask it could be changed, and
// read where the enforcer did not hear of it.
func (s *session) currentMasks(now map[uint64]sys.Mount) (stay []pathclass.Place) {
	seen := map[string]bool{}
	for _, c := range slices.Concat(s.masks, s.hiddenMasks) {
		p := now[c.ID].Path
		if p != "" && c.Class > filerules.Open && !seen[p] {
			stay = append(stay, pathclass.Place{Path: p, Class: c.Class, Dir: c.Dir, Inode: c.Inode})
		}
		seen[p] = true
	}
	return stay
}

// unrecorded are the mounts that are neither bubblewrap's nor recorded.
func (s *session) unrecorded(
	lines []sys.Mount, wants []pathclass.Place, exceptions bool,
) (all []masks.Mount) {
	recorded := map[uint64]bool{}
	for _, c := range slices.Concat(s.masks, s.hiddenMasks) {
		recorded[c.ID] = true
	}
	for _, l := range lines {
		if !recorded[uint64(l.ID)] && !slices.Contains(s.baseIDs, l.ID) {
			all = append(all, s.adopt(l, wants, exceptions))
		}
	}
	return all
}
