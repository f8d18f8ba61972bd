package plan

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

var someView = View{User: "chat-x", UID: 7, Home: "/srv/h", Tmp: "/t", VarTmp: "/v", Shim: "/s", ShimDir: "/sd", BinDir: "/bd",
	PromptFIFO: "/f", Network: chat.NetworkNone, Exposed: []chat.Exposed{
		{Source: "/data/tools", Target: "/opt/tools", Mode: chat.ReadOnly, Exec: true, By: "expose_paths[0]"},
		{Source: "/data/out", Target: "/srv/h/out", Mode: chat.ReadWrite, By: "expose_paths[1]"},
		{Source: "/etc/motd", Target: "/etc/motd", Mode: chat.ReadOnly, File: true, By: "allow_read_paths[0]"},
		{Source: "/data/log", Target: "/data/log", Mode: chat.ReadWrite, File: true, By: "allow_write_paths[0]"},
		{Source: "/data/docs", Target: "/data/docs", Mode: chat.ReadOnly, By: "allow_read_paths[1]"},
	}}

// The plan of a session is what bwrap is started with: every entry is in the arguments, in its
// order, and there is no path in them that has no entry.
func TestArgsAreTheMounts(t *testing.T) {
	for _, without := range [][]chat.LayerName{nil, {chat.LayerView}, {chat.LayerTmp, chat.LayerProc}} {
		v := someView
		v.Without = without
		args, files := v.Args(6)
		at := 0
		for _, m := range v.Mounts() {
			if m.Target == "/" && m.Type == chat.MountTmpfs {
				continue
			}
			i := slices.Index(args[at:], m.Target)
			if m.Source == m.Target && i >= 0 { // the first of the two is the source
				i++
			}
			if i < 0 || at+i >= len(args) || args[at+i] != m.Target {
				t.Fatalf("without %v: %+v is not in %q", without, m, args[at:])
			}
			at += i
		}
		known := []string{"/"}
		for _, m := range v.Mounts() {
			known = append(known, m.Source, m.Target)
		}
		for _, a := range args {
			if path.IsAbs(a) && !slices.Contains(known, a) {
				t.Errorf("without %v: %s has no entry", without, a)
			}
		}
		if n := strings.Count(strings.Join(args, " "), "--file "); n != len(files) {
			t.Errorf("without %v: %d files, %d contents", without, n, len(files))
		}
	}
}

func TestExposed(t *testing.T) {
	args, _ := someView.Args(6)
	text := strings.Join(args, " ")
	for _, want := range []string{
		"--bind /srv/h /srv/h --ro-bind /data/tools /opt/tools --bind /data/out /srv/h/out --ro-bind /etc/motd /etc/motd",
		"--remount-ro /dev --remount-ro / --chdir /",
	} {
		expect.True(t, strings.Contains(text, want), "want %q in %s", want, text)
	}
	r := someView.Rules()
	for name, c := range map[string]struct {
		list []string
		path string
	}{
		"exec": {r.Exec, "/opt/tools"}, "write": {r.Write, "/srv/h/out"}, "read_files": {r.ReadFiles, "/etc/motd"},
		"write_files": {r.WriteFiles, "/data/log"}, "read": {r.Read, "/data/docs"},
	} {
		expect.True(t, slices.Contains(c.list, c.path), "%s has no %s: %q", name, c.path, c.list)
	}
	v := someView
	v.Without = []chat.LayerName{chat.LayerView}
	for _, m := range v.Mounts() {
		expect.True(t, m.By == "", "exposed though the whole host is there: %+v", m)
	}
}

// Nothing that chatd puts into a session may be covered by what an operator exposes, but
// for settings of programs.
func TestOwnPlacesAreKept(t *testing.T) {
	v := someView
	v.Exposed = nil
	settings := slices.Concat(settingsIn("/"), etcCopied, []string{"/etc/mime.types"})
	for _, m := range v.Mounts() {
		if m.Target == "/" || m.Target == v.Home || m.Type == chat.MountDir && m.Target == "/etc/ssl" {
			continue
		}
		if slices.Contains(settings, m.Target) {
			continue
		}
		expect.True(t, chat.ReservedPath(m.Target) != "", "%s may be covered", m.Target)
	}
}

// What an operator exposes at or below a directory of settings is there in its place:
// nothing can be mounted below what is read-only.
func TestSettingsGiveWay(t *testing.T) {
	for _, dir := range settingsIn("/") {
		for _, target := range []string{dir, dir + "/own"} {
			v := someView
			v.Exposed = []chat.Exposed{{Source: "/data", Target: target, Mode: chat.ReadOnly}}
			if slices.ContainsFunc(v.Mounts(), func(m chat.Mount) bool { return m.Target == dir && m.Source == dir }) {
				t.Errorf("%s is there, below %s", dir, target)
			}
		}
	}
}

// The environment is made from nothing: not a name of this process's is in it.
func TestEnvIsNotInherited(t *testing.T) {
	t.Setenv("LEAK", "1")
	env := someView.Env()
	for _, e := range env {
		if name, value, _ := strings.Cut(e, "="); name == "LEAK" || value == "" {
			t.Errorf("%s", e)
		}
	}
	for _, want := range []string{"HOME=/srv/h", "TMPDIR=/tmp", "XDG_CONFIG_HOME=/srv/h/runtime-user-env/config",
		"XDG_CACHE_HOME=/srv/h/runtime-user-env/cache", "XDG_STATE_HOME=/srv/h/runtime-user-env/state"} {
		expect.True(t, slices.Contains(env, want), "no %s in %q", want, env)
	}
}
