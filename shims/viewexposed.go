package shims

import (
	"slices"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/landlock"
)

// Exposed is one path of the host that this session sees besides what every
// session does. Who fills it has resolved Source: no part of it is a link, or may
// be swapped by a chat, and where Target lies in the home it is there already.
type Exposed struct {
	Source string    `json:"source"`
	Target string    `json:"target"`
	Mode   chat.Mode `json:"mode"`
	// File: it is a regular file, not a directory.
	File bool `json:"file,omitempty"`
	// Exec: programs in it may be run also where it is read-only.
	Exec bool `json:"exec,omitempty"`
	// By is the key of the profile that asks for it.
	By string `json:"by"`
}

// exposedRules adds to r what Landlock lets through for the exposed paths.
func (v View) exposedRules(r landlock.Rules) landlock.Rules {
	for _, e := range v.Exposed {
		list := exposedList(&r, e)
		*list = append(slices.Clip(*list), e.Target)
	}
	return r
}

func exposedList(r *landlock.Rules, e Exposed) *[]string {
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
