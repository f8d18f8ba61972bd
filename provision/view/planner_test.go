package view

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/provision/exposure"
	"github.com/chatd/chatd/provision/layers"
	"github.com/chatd/chatd/provision/session"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// planned is a planner, with what it logs, and a chat of a profile that exposes nothing.
func planned(change func(*Options)) (*Planner, *bytes.Buffer, Chat) {
	var log bytes.Buffer
	o := Options{Homes: "/h", Own: []string{"/h", "/s"}, Shim: "/s/bin/chatd-shim"}
	o.Layers, o.Log = layers.New(layers.Options{}), slog.New(slog.NewTextHandler(&log, nil))
	o.Programs = session.NewPrograms("/s/profiles", o.Log)
	if change != nil {
		change(&o)
	}
	c := Chat{
		ID: "00112233445566aa", Home: "/h/00112233445566aa", Tmp: "/s/tmp/a", VarTmp: "/s/vartmp/a",
		Profile: chat.Profile{Name: "shop"}, Network: chat.NetworkNone,
	}
	c.Dir = session.Dir{Parent: "/r/sessions", Chat: c.ID}
	return New(o), &log, c
}

// TestOf: a session has its chat's own directories and its profile's PATH and limits, and the
// chat's own variables come over those of the profile.
func TestOf(t *testing.T) {
	p, _, c := planned(func(o *Options) {
		o.Layers = layers.New(layers.Options{Without: []chat.LayerName{chat.LayerProc}})
	})
	c.Profile.Env, c.Env = map[string]string{"A": "profile"}, map[string]string{"A": "chat"}
	c.Profile.AllowNetlink, c.Profile.Limits.ShmSize = true, 7
	c.Denied = []string{"/usr/share/secret"}
	v := p.Of(c)
	for what, got := range map[string][2]string{
		"home":   {v.Home, c.Home},
		"tmp":    {v.Tmp, c.Tmp},
		"vartmp": {v.VarTmp, c.VarTmp},
		"shims":  {v.ShimDir, "/s/profiles/shop/shims"},
		"bin":    {v.BinDir, "/s/profiles/shop/bin"},
		"prompt": {v.PromptFIFO, c.Dir.Prompt()},
		"log":    {v.LogFIFO, c.Dir.Log()},
		"user":   {v.User, c.ID.User()},
	} {
		if got[0] != got[1] {
			t.Errorf("%s is %q, want %q", what, got[0], got[1])
		}
	}
	vars := []string{"A=profile", "A=chat"}
	expect.True(t, slices.Equal(v.Vars, vars) && slices.Contains(v.Env(), "A=chat"),
		"variables %q of %q", v.Vars, v.Env())
	without := []chat.LayerName{chat.LayerProc}
	if v.Opened != (plan.Openings{Netlink: true}) || v.Limits.ShmSize != 7 ||
		!slices.Equal(v.Denied, c.Denied) || !slices.Equal(v.Without, without) ||
		v.Network != chat.NetworkNone {
		t.Errorf("%+v", v)
	}
	expect.True(t, v.PolicyDir == "" && v.Etc == nil && v.Exposed == nil,
		"what enters a session has what begins one: %+v", v)
	p, _, _ = planned(func(o *Options) { o.Units = true })
	if v := p.Of(c); v.Tmp != "/tmp" || v.VarTmp != "/var/tmp" {
		t.Errorf("with systemd /tmp is %s, and /var/tmp is %s", v.Tmp, v.VarTmp)
	}
}

// TestNext: what begins a session has its policy, and the exposed paths as the host has them now.
func TestNext(t *testing.T) {
	p, _, c := planned(nil)
	c.Profile.ExposePaths = []chat.Expose{
		{Source: "/usr/share", Target: "~/share", Mode: chat.ReadOnly},
	}
	v, notes, err := p.Next(c)
	must.True(t, err == nil && len(notes) == 0 && len(v.Exposed) == 1, "%+v, %q, %v", v.Exposed, notes, err)
	if e := v.Exposed[0]; e.Source != "/usr/share" || e.Target != c.Home+"/share" || e.File {
		t.Errorf("%+v", e)
	}
	expect.True(t, v.PolicyDir == c.Dir.Policy() && v.Etc != nil && v.Home == c.Home, "%+v", v)
	open, _, _ := planned(func(o *Options) {
		o.Layers = layers.New(layers.Options{Without: []chat.LayerName{chat.LayerView}})
	})
	if v, _, err := open.Next(c); err != nil || len(v.Exposed) > 0 {
		t.Errorf("without the wall: %+v, %v", v.Exposed, err)
	}
}

// TestHostChanged: what was valid when chatd started, and is not any more, is no fault of the
// caller: the error has no kind, and names profile and path for the log. When a profile is
// checked, it has both.
func TestHostChanged(t *testing.T) {
	p, _, c := planned(nil)
	c.Profile.ExposePaths = []chat.Expose{
		{Source: "/usr/no-such", Target: "/x", Mode: chat.ReadOnly},
	}
	v, _, err := p.Next(c)
	var key *exposure.KeyError
	if err == nil || errors.Is(err, chat.ErrInvalid) || errors.As(err, &key) || len(v.Exposed) > 0 {
		t.Errorf("%+v, %v", v.Exposed, err)
	}
	if s := err.Error(); !strings.Contains(s, "profile shop") || !strings.Contains(s, "no-such") {
		t.Errorf("%v", err)
	}
	_, _, err = p.Check(c)
	if !errors.As(err, &key) || key.Key != "expose_paths[0].source" ||
		!errors.Is(err, chat.ErrInvalid) {
		t.Errorf("checked: %v", err)
	}
}

// TestCheckOwn: no profile exposes a part of chatd's own directories, or the homes.
func TestCheckOwn(t *testing.T) {
	p, _, c := planned(func(o *Options) { o.Own = []string{"/usr/share"} })
	for _, e := range []chat.Expose{
		{Source: "/usr/share", Target: "/x", Mode: chat.ReadOnly},
		{Source: "/usr/bin", Target: "/h/other", Mode: chat.ReadOnly},
	} {
		c.Profile.ExposePaths = []chat.Expose{e}
		expect.Is(t, expect.Err(p.Check(c)), chat.ErrInvalid, "%s at %s", e.Source, e.Target)
	}
}

// TestReached: a path counts as exposed only if the chat itself can reach it.
func TestReached(t *testing.T) {
	must.Root(t, "it becomes a chat's uid")
	dir := must.Get(os.MkdirTemp("/srv", "chatd-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	p, _, c := planned(nil)
	c.UID = 70001
	inner := filepath.Join(dir, "inner")
	c.Profile.ExposePaths = []chat.Expose{{Source: inner, Target: "/x", Mode: chat.ReadOnly}}
	must.Do(t, os.Mkdir(inner, 0o755))
	for mode, reached := range map[os.FileMode]bool{0o700: false, 0o711: true} {
		must.Do(t, os.Chmod(dir, mode))
		v, _, err := p.Next(c)
		expect.True(t, (err == nil) == reached && (len(v.Exposed) == 1) == reached,
			"next, mode %o: %+v, %v", mode, v.Exposed, err)
		if all, _, err := p.Check(c); (err == nil) != reached || (len(all) == 1) != reached {
			t.Errorf("checked, mode %o: %+v, %v", mode, all, err)
		}
	}
}

// TestMakeMountPoints: the outermost exposed paths in the home get their mount points, of the
// chat's uid; what the chat had there is moved aside, and that is logged.
func TestMakeMountPoints(t *testing.T) {
	must.Root(t, "it becomes a chat's uid")
	homes := must.Get(os.MkdirTemp("/srv", "chatd-test-"))(t)
	t.Cleanup(func() { os.RemoveAll(homes) })
	const uid = 70001
	p, log, c := planned(nil)
	c.Home, c.UID = filepath.Join(homes, string(c.ID)), uid
	old := filepath.Join(c.Home, "file")
	if err := errors.Join(os.Chmod(homes, 0o711), os.Mkdir(c.Home, 0o700), os.Mkdir(old, 0o700),
		os.Chown(old, uid, uid), os.Chown(c.Home, uid, uid)); err != nil {
		t.Fatal(err)
	}
	must.Do(t, p.MakeMountPoints(c, []chat.Exposed{
		{Target: "/elsewhere"},
		{Target: c.Home + "/dir/deep"},
		{Target: c.Home + "/dir/deep/inside"},
		{Target: c.Home + "/file", File: true},
	}))
	var have []string
	err := filepath.WalkDir(c.Home, func(path string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(c.Home, path)
		have = append(have, d.Type().String()[:1]+rel)
		return err
	})
	want := []string{"d.", "ddir", "ddir/deep", "-file", "dfile.chatd-1"}
	expect.True(t, err == nil && slices.Equal(have, want), "the home has %q, want %q: %v", have, want, err)
	s := log.String()
	expect.True(t, strings.Count(s, "moved aside") == 1 && strings.Contains(s, "file.chatd-1"),
		"the log has %q", s)
	fi, err := os.Stat(filepath.Join(c.Home, "dir/deep"))
	expect.True(t, err == nil && fi.Mode().Perm() == 0o700, "%v, %v", fi, err)
	c.Home = filepath.Join(homes, "gone")
	if err := p.MakeMountPoints(c, []chat.Exposed{{Target: "/elsewhere"}}); err != nil {
		t.Errorf("a home in which nothing is mounted is opened: %v", err)
	}
	if err := p.MakeMountPoints(c, []chat.Exposed{{Target: c.Home + "/x"}}); err == nil {
		t.Error("a mount point was made in a home that is not there")
	}
}
