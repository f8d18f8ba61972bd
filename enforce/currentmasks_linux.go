package enforce

import (
	"slices"

	"github.com/chatd/chatd/sys"
)

// currentMasks are the places that have a cover now. By the same rules each of them stays: what has
// another name since, or is moved amid a look that misses it, would be open to be changed without,
// and to be read where nothing was heard of it.
func (s *session) currentMasks(now map[uint64]sys.Mount) (stay []want) {
	seen := map[string]bool{}
	for _, c := range slices.Concat(s.masks, s.buriedMasks) {
		p := now[c.id].Path
		if p != "" && c.class > wallOpen && !seen[p] {
			stay = append(stay, want{path: p, class: c.class, dir: c.dir, inode: c.inode})
		}
		seen[p] = true
	}
	return stay
}

// unrecorded are the mounts that are neither bubblewrap's nor noted.
func (s *session) unrecorded(lines []sys.Mount, wants []want, exceptions bool) (all []maskMount) {
	noted := map[uint64]bool{}
	for _, c := range slices.Concat(s.masks, s.buriedMasks) {
		noted[c.id] = true
	}
	for _, l := range lines {
		if !noted[uint64(l.ID)] && !slices.Contains(s.baseIDs, l.ID) {
			all = append(all, s.adopt(l, wants, exceptions))
		}
	}
	return all
}
