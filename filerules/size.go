package filerules

import "unsafe"

// filedSize is about what the index has of one matcher: a key, its place and the list.
const filedSize = 128

// Size is about how many bytes the ruleset holds, for who keeps many. The rules as they
// are written, which are the policy's, do not count.
func (rs *Ruleset) Size() int {
	n := int(unsafe.Sizeof(*rs)) + len(rs.rules)*int(unsafe.Sizeof(Compiled{}))
	for _, c := range rs.rules {
		for _, m := range c.Matchers {
			n += int(unsafe.Sizeof(m)) + len(m.Glob) + len(m.Prefix) + cap(m.segs)*int(unsafe.Sizeof(segment{})) + filedSize
		}
	}
	return n
}
