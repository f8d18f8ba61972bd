package chat

import (
	"reflect"
	"testing"
)

// Each key that opens more than a home closes the profile to bridges that it does not name. Check a
// new key of Profile here.
func TestBridgesOfWhatAProfileOpens(t *testing.T) {
	allow, err := ParseAllow("203.0.113.5:443")
	if err != nil {
		t.Fatal(err)
	}
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
