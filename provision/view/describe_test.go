package view

import (
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
)

var exposing = plan.View{User: "chat-x", UID: 7, Home: "/srv/h", Tmp: "/t", VarTmp: "/v", Shim: "/s", ShimDir: "/sd", BinDir: "/bd",
	PromptFIFO: "/f", Network: chat.NetworkNone, Exposed: []chat.Exposed{
		{Source: "/data/tools", Target: "/opt/tools", Mode: chat.ReadOnly, Exec: true, By: "expose_paths[0]"},
		{Source: "/data/out", Target: "/srv/h/out", Mode: chat.ReadWrite, By: "expose_paths[1]"},
		{Source: "/etc/motd", Target: "/etc/motd", Mode: chat.ReadOnly, File: true, By: "allow_read_paths[0]"},
		{Source: "/data/log", Target: "/data/log", Mode: chat.ReadWrite, File: true, By: "allow_write_paths[0]"},
		{Source: "/data/docs", Target: "/data/docs", Mode: chat.ReadOnly, By: "allow_read_paths[1]"},
	}}

// TestDescribeConfinement: a plan lists what it enforces, without the values of the environment.
func TestDescribeConfinement(t *testing.T) {
	p := exposing.Plan("/srv/h", 2, []string{"sh"}, []string{"SECRET=of the caller"})
	got := Start{View: exposing, Plan: p}.Describe()
	if !slices.Contains(got.Env, "SECRET") || !slices.Contains(got.Env, "HOME") || slices.ContainsFunc(got.Env, func(e string) bool { return strings.Contains(e, "=") }) {
		t.Errorf("env %q", got.Env)
	}
	if !slices.Equal(got.Namespaces, []string{"cgroup", "ipc", "mount", "net", "pid", "user", "uts"}) {
		t.Errorf("namespaces %q", got.Namespaces)
	}
	for _, call := range []string{"ioctl", "socket", "clone", "mknodat"} {
		expect.True(t, slices.Contains(got.SeccompConditional, call),
			"%s is not checked: %q", call, got.SeccompConditional)
	}
	if !slices.Contains(got.Seccomp, "mount") || !slices.Contains(got.Landlock, chat.PathRight{Right: "exec", Path: "/opt/tools"}) || len(got.Mounts) != len(exposing.Mounts()) {
		t.Errorf("%+v", got)
	}
	v := exposing
	v.Without = []chat.LayerName{chat.LayerLandlock, chat.LayerSeccomp, chat.LayerNetwork}
	got = Start{View: v, Plan: v.Plan("/", 2, []string{"sh"}, nil)}.Describe()
	if len(got.Landlock)+len(got.Seccomp) > 0 || slices.Contains(got.Namespaces, "net") || len(got.Without) != 3 {
		t.Errorf("%+v", got)
	}
}
