package plan

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func TestReadPlan(t *testing.T) {
	v := View{User: "chat-x", Home: "/srv/x"}
	want := v.Plan("/srv/x", 2, []string{"sh", "-c", "true"}, []string{"PATH=/evil", "A=1"})
	text := must.Get(json.Marshal(want))(t)
	got, err := ReadPlan(strings.NewReader(string(text)))
	if err != nil || !slices.Equal(got.Argv, want.Argv) || !slices.Equal(got.Env, want.Env) || got.MinABI != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"empty": "", "no command": `{"dir":"/"}`, "unknown field": `{"dir":"/","argv":["x"],"wall":1}`,
		"two": string(text) + string(text), "report on stdout": `{"dir":"/","argv":["x"],"report_fd":1}`,
		"relative": `{"dir":"x","argv":["x"]}`,
		"long":     `{"dir":"/","argv":["` + strings.Repeat("x", MaxPlan) + `"]}`,
	} {
		expect.Is(t, expect.Err(ReadPlan(strings.NewReader(text))), chat.ErrInvalid, "%s", name)
	}
}

func TestMergeEnv(t *testing.T) {
	got := mergeEnv([]string{"A=1", "B=2"}, []string{"B=3", "C=4", "B=5"})
	expect.True(t, slices.Equal(got, []string{"A=1", "B=5", "C=4"}), "got %q", got)
}

func TestViewFiles(t *testing.T) {
	v := View{User: "chat-x", UID: 7, Home: "/srv/x", Network: chat.NetworkOwn}
	content := func(v View) map[string]string {
		out := map[string]string{}
		_, files := v.Args(9)
		for _, f := range files {
			out[f.Target] = string(f.Content)
		}
		return out
	}
	got := content(v)
	if got["/etc/resolv.conf"] != "nameserver 127.0.0.1\n" {
		t.Errorf("resolv.conf: %q", got["/etc/resolv.conf"])
	}
	if !strings.HasPrefix(got["/etc/passwd"], "chat-x:x:7:7:chat:/srv/x:/bin/bash\n") || strings.Contains(got["/etc/passwd"], "root") {
		t.Errorf("passwd: %q", got["/etc/passwd"])
	}
	v.Network = chat.NetworkNone
	expect.True(t, !strings.Contains(content(v)["/etc/resolv.conf"], "\nnameserver"),
		"a nameserver where none is listed")
}

func TestViewArgs(t *testing.T) {
	v := View{User: "chat-x", Home: "/h", Tmp: "/t", VarTmp: "/v", Shim: "/s", ShimDir: "/sd", BinDir: "/bd", Network: chat.NetworkNone, InfoFD: 5}
	args, files := v.Args(6)
	text := strings.Join(args, " ")
	for _, want := range []string{"--unshare-net", "--disable-userns", "--info-fd 5", "--file 6 ", "--remount-ro /dev --remount-ro / --chdir /", "--bind /h /h"} {
		expect.True(t, strings.Contains(text, want), "want %q in %s", want, text)
	}
	if strings.Count(text, "--file ") != len(files) || strings.Contains(text, "--die-with-parent") {
		t.Errorf("%d files: %s", len(files), text)
	}
	v.Without = []chat.LayerName{chat.LayerNetwork}
	if args, _ := v.Args(6); slices.Contains(args, "--unshare-net") {
		t.Error("a network namespace without the layer")
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add(`{"dir":"/","argv":["true"],"env":["A=1"],"landlock":{"read":["/"]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ReadPlan(strings.NewReader(text)); err == nil && (len(p.Argv) == 0 || p.Dir[0] != '/') {
			t.Errorf("accepted %q", text)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add("Name:\tx\nUid:\t1\t2\t3\t4\nSeccomp:\t2\nNoNewPrivs:\t1\nCapEff:\t00ff\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := ParseStatus(text); err != nil && !errors.Is(err, chat.ErrInvalid) {
			t.Error(err)
		}
	})
}
