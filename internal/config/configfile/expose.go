package configfile

import (
	"fmt"

	"github.com/chatd/chatd/chat"
)

// exposeEverywhere adds the rules for all profiles to each profile; a profile's own rule for a
// target wins.
func (d *decoder) exposeEverywhere() {
	all := d.doc.ExposePaths
	if key, err := chat.CheckExposePaths(all); err != nil || d.Faulty("expose_paths") {
		d.Add(key, err)
		return
	}
	for name, p := range d.doc.Profiles {
		at := map[string]string{} // of a target: the key of its rule
		note := func(prefix string, rules []chat.Expose) {
			for i, e := range chat.OverrideExpose(nil, rules) {
				at[e.Target] = fmt.Sprintf("%sexpose_paths[%d]", prefix, i)
			}
		}
		prefix := "profiles." + name + "."
		note("", all)
		note(prefix, p.ExposePaths)
		p.ExposePaths = chat.OverrideExpose(all, p.ExposePaths)
		for i, e := range p.ExposePaths {
			d.doc.Written[fmt.Sprintf("%sexpose_paths[%d]", prefix, i)] = at[e.Target]
		}
		d.doc.Profiles[name] = p
	}
}
