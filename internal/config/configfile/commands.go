package configfile

import (
	"maps"
	"slices"
	"strings"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/config"
)

// commands are the names of a list with the names of its sets in their place, and without those that
// it takes away.
func (d *decoder) commands(key string, list []string) []string {
	all := []string{}
	for _, name := range list {
		set, isSet := strings.CutPrefix(name, "@")
		gone, isGone := strings.CutPrefix(name, "-")
		switch names, known := d.doc.CommandSets[set]; {
		case isSet && !known:
			sets := config.Words(slices.Sorted(maps.Keys(d.doc.CommandSets)))
			d.Add(key, chat.Invalid("%s: want @ and one of %s", chat.Quote(name), sets))
		case isSet:
			all = append(all, names...)
		case isGone && !slices.Contains(all, gone):
			d.Add(key, config.Wrong(name, "the name of a command that is named before it"))
		case isGone:
			all = slices.DeleteFunc(all, func(n string) bool { return n == gone })
		default:
			all = append(all, name)
		}
	}
	return all
}
