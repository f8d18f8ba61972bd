package chat

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
)

func TestProfileNetwork(t *testing.T) {
	address, name := []string{"192.0.2.1:443"}, []string{"192.0.2.1:443", "*.example.com:443"}
	for _, x := range []struct {
		network Network
		egress  []string
		want    Network
		refused string // what the error says
	}{
		{"", nil, NetworkNone, ""}, {"", address, NetworkOwn, ""}, {"", name, NetworkOwn, ""},
		{NetworkNone, nil, NetworkNone, ""},
		{NetworkNone, address, NetworkNone, "nothing could reach"},
		{NetworkNone, name, NetworkNone, "nothing could reach"},
		{NetworkShared, nil, NetworkShared, "no longer there: want own"},
		{NetworkShared, address, NetworkShared, "no longer there: want own"},
		{NetworkOwn, nil, NetworkOwn, ""}, {NetworkOwn, address, NetworkOwn, ""},
		{NetworkOwn, name, NetworkOwn, ""},
		{"", []string{"127.0.0.0/8:80"}, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"[::1]:80"}, NetworkOwn, "the chat's own"},
		{NetworkOwn, []string{"198.18.0.0/15:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.19.1.1:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"[fd63:6861:7464:1::/64]:80"}, NetworkOwn, "a name's"},
		{NetworkOwn, []string{"198.0.0.0/8:80", "198.20.0.0/16:80"}, NetworkOwn, ""},
		{"host", nil, "host", "want own or none"},
	} {
		p := Profile{Name: "p", Limits: DefaultLimits(), Network: x.network}
		p.Egress = allows(t, x.egress...)
		if got := p.EffectiveNetwork(); got != x.want {
			t.Errorf("%+v: network %s", x, got)
		}
		err := p.Validate()
		switch {
		case x.refused == "":
			if err != nil {
				t.Errorf("%+v: %v", x, err)
			}
		case !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), x.refused):
			t.Errorf("%+v: %v, want ErrInvalid with %q", x, err, x.refused)
		}
	}
}

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

// Each key that opens more than a home closes the profile to bridges that it does not name. Check a
// new key of Profile here.
func TestBridgesOfWhatAProfileOpens(t *testing.T) {
	allow := must.Get(ParseAllow("203.0.113.5:443"))(t)
	ada, bob := Caller{Name: "ada", Role: RoleBridge}, Caller{Name: "bob", Role: RoleBridge}
	opening := map[string]Profile{
		"Egress":                    {Egress: []Allow{allow}},
		"EgressMayAdd":              {EgressMayAdd: []Allow{allow}},
		"Secrets":                   {Secrets: []string{"openai"}},
		"Skeleton":                  {Skeleton: "/etc/skel"},
		"ExposePaths":               {ExposePaths: []Expose{{Source: "/data", Mode: ReadOnly}}},
		"AllowReadPaths":            {AllowReadPaths: []string{"^/data/x$"}},
		"AllowWritePaths":           {AllowWritePaths: []string{"^/data/x$"}},
		"AllowReadOutsideWorkspace": {AllowReadOutsideWorkspace: true},
		"AllowNetlink":              {AllowNetlink: true},
		"AllowSeccomp":              {AllowSeccomp: true},
	}
	// These keys restrict a chat, or grant nothing beyond what the host gives every chat.
	harmless := map[string]bool{"Name": true, "Limits": true, "Bridges": true, "Commands": true, "CommandsAdd": true, "AccessFile": true,
		"Defaults": true, "Guard": true, "Env": true, "TimeoutMax": true, "ToolsOff": true, "Agents": true,
		"SleepAfter": true, "FreezeAfter": true, "ReapAfter": true, "ReapWithoutArchive": true,
		"KeepAwake": true, "Network": true}
	for i := range reflect.TypeFor[Profile]().NumField() {
		key := reflect.TypeFor[Profile]().Field(i).Name
		p, opens := opening[key]
		if opens == harmless[key] {
			t.Errorf("%s: say whether it opens anything", key)
		}
		if !opens {
			continue
		}
		if p.MayUse(ada) || len(p.AdmittedBridges()) != 0 || len(p.Opens()) != 1 {
			t.Errorf("%s: every bridge may use it", key)
		}
		p.Bridges = []string{"ada"}
		if !p.MayUse(ada) || p.MayUse(bob) {
			t.Errorf("%s: want ada alone", key)
		}
		p.Bridges = []string{EveryBridge}
		if !p.MayUse(bob) {
			t.Errorf("%s: want everybody", key)
		}
	}
	closed := Profile{Bridges: []string{}}
	for _, c := range []Caller{ada, {}, {Name: "root"}, {Role: RoleBridge}} {
		if closed.MayUse(c) {
			t.Errorf("%+v may use a profile of operators", c)
		}
	}
	if !(Profile{}).MayUse(ada) || (Profile{}).MayUse(Caller{Role: RoleBridge}) || !closed.MayUse(Caller{Role: RoleOperator}) {
		t.Error("a profile that opens nothing is for every bridge with a name, each profile for operators")
	}
}
