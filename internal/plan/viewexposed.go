package plan

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// exposedRules adds to r the grants of the exposed paths.
func (v View) exposedRules(r landlock.Rules) landlock.Rules {
	for _, e := range v.Exposed {
		list := exposedList(&r, e)
		*list = append(slices.Clip(*list), e.Target)
	}
	return r
}

func exposedList(r *landlock.Rules, e chat.Exposed) *[]string {
	switch {
	case e.Mode == chat.ReadWrite && e.File:
		return &r.WriteFiles
	case e.Mode == chat.ReadWrite:
		return &r.Write
	case e.Exec && e.File:
		return &r.ExecFiles
	case e.Exec:
		return &r.Exec
	case e.File:
		return &r.ReadFiles
	}
	return &r.Read
}
