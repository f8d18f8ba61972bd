package filerules

import "unsafe"

// Size is the ruleset's approximate size in bytes, for callers that keep many. It does not count
// the parsed rules, which belong to the policy.
func (rs *Ruleset) Size() int {
	n := int(unsafe.Sizeof(*rs)) + len(rs.rules)*int(unsafe.Sizeof(CompiledRule{}))
	for _, c := range rs.rules {
		for _, m := range c.Matchers {
			n += int(unsafe.Sizeof(m)) + len(m.Glob) + len(m.Prefix) + cap(m.segs)*int(unsafe.Sizeof(segment{}))
		}
	}
	return n
}
