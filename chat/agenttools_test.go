package chat

import (
	"slices"
	"testing"
)

// TestAgentTools: an agent has what its list names, without what it and its profile switch off; one
// that is not named has all of the profile's.
func TestAgentTools(t *testing.T) {
	p := Profile{Name: "p", ToolsOff: []string{ToolListDir}, Agents: map[string]AgentTools{
		"reader": {Tools: []string{ToolReadOnly}}, "quiet": {ToolsOff: []string{ToolReadOnly}},
		"runner": {Tools: []string{ToolReadOnly, ToolExec, ToolTerminal}, ToolsOff: []string{ToolTerminal}},
		"none":   {Tools: []string{}}, "all": {}, "writer": {Tools: []string{ToolWriteFile}},
	}}
	for agent, want := range map[string][]string{
		"reader": {ToolReadFile}, "quiet": {ToolReadFile}, "runner": {ToolExec, ToolReadFile}, "none": nil,
		"writer": {ToolWriteFile}, "all": slices.DeleteFunc(Tools(), func(t string) bool { return t == ToolListDir }),
		"main": slices.DeleteFunc(Tools(), func(t string) bool { return t == ToolListDir }),
	} {
		var got []string
		for _, tool := range Tools() {
			if p.As(agent).CheckTool(tool) == nil {
				got = append(got, tool)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", agent, got, want)
		}
	}
	if !slices.Equal(p.ToolsOff, []string{ToolListDir}) {
		t.Errorf("the profile itself has become %q", p.ToolsOff)
	}
}
