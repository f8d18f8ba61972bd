package chat

import "slices"

// AgentTools are which tools the chats of one agent have, of those that their profile has. In both
// lists [ToolReadOnly] leaves those that only read.
type AgentTools struct {
	// Tools are the only ones; nil is all.
	Tools []string `json:"tools"`
	// ToolsOff are switched off, also if Tools has them.
	ToolsOff []string `json:"tools_off"`
}

// As is the profile as the chats of an agent have it.
func (p Profile) As(agent string) Profile {
	own, ok := p.Agents[agent]
	if !ok {
		return p
	}
	p.ToolsOff = slices.Concat(p.ToolsOff, own.ToolsOff)
	for _, tool := range Tools() {
		reads := !writes(tool) && slices.Contains(own.Tools, ToolReadOnly)
		if own.Tools != nil && !reads && !slices.Contains(own.Tools, tool) {
			p.ToolsOff = append(p.ToolsOff, tool)
		}
	}
	return p
}

// writes reports whether a tool can write.
func writes(tool string) bool { return tool != ToolReadFile && tool != ToolListDir }
