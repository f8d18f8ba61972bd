package shims

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestDeniedIsLeftOut: where file rules close what a session is shown, Landlock grants
// nothing there, whether the enforcer keeps them or not, by no link either; what lies beside
// is as it was. Without Landlock it is read.
func TestDeniedIsLeftOut(t *testing.T) {
	v := newView(t)
	shared := filepath.Dir(v.Home) + "/shared"
	for _, f := range []string{"open/f", "secret/f", "in/deep/secret/f", "in/deep/f"} {
		must.Do(t, os.MkdirAll(filepath.Join(shared, filepath.Dir(f)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(shared, f), []byte("x"), 0o644))
	}
	must.Do(t, os.Symlink("secret/f", shared+"/link"))
	must.Do(t, os.Symlink("secret", shared+"/way"))
	v.Exposed = []chat.Exposed{{Source: shared, Target: "/data", Mode: chat.ReadOnly}, {Source: shared + "/secret", Target: "/whole", Mode: chat.ReadWrite}}
	const doc = "/usr/share/doc"
	granted := v
	v.Denied = []string{"/data/secret", "/data/in/deep/secret", "/whole", doc, v.Home + "/x", "/tmp/x"}
	if got, want := v.LeftOut(), []string{"/data/secret", "/data/in/deep/secret", "/whole", doc}; !slices.Equal(got, want) {
		t.Errorf("left out are %q, want %q", got, want)
	}
	open := v
	open.Without = []chat.LayerName{chat.LayerLandlock}
	for _, c := range []struct{ do, path, want string }{
		{"read", "/data/secret/f", "EACCES"}, {"read", "/data/in/deep/secret/f", "EACCES"}, {"read", "/data/link", "EACCES"},
		{"read", "/data/way/f", "EACCES"}, {"read", "/whole/f", "EACCES"},
		{"read", "/data/open/f", "ok"}, {"read", "/data/in/deep/f", "ok"}, {"list", "/data", "ok"}, {"list", "/data/in/deep", "ok"},
		{"list", "/usr/share", "ok"}, {"read", "/usr/bin/env", "ok"}, {"read", "/bin/sh", "ok"},
	} {
		for name, tt := range map[string]struct {
			v    plan.View
			want string
		}{"denied": {v, c.want}, "not denied": {granted, "ok"}, "without Landlock": {open, "ok"}} {
			if got, _, _ := runIn(t, tt.v, v.Home+"/attack", c.do, c.path); got != tt.want {
				t.Errorf("%s: %s %s: %s, want %s", name, c.do, c.path, got, tt.want)
			}
		}
	}
}

// TestDeniedBesideMuch: a directory with more in it than can be granted one by one is granted
// whole, and said not to be left out.
func TestDeniedBesideMuch(t *testing.T) {
	dir := t.TempDir()
	for i := range plan.MaxBeside + 1 {
		must.Do(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i%26))+filepath.Base(t.Name())+string(rune(0x4e00+i))), nil, 0o644))
	}
	v := plan.View{Home: "/srv/x", Exposed: []chat.Exposed{{Source: dir, Target: "/data", Mode: chat.ReadOnly}}, Denied: []string{"/data/secret"}}
	if got := v.LeftOut(); len(got) > 0 {
		t.Errorf("left out are %q", got)
	}
	expect.True(t, slices.Contains(v.Rules().Read, "/data"), "nothing is granted instead")
}

// TestMasked: what is masked cannot be opened, with nobody else who keeps it; without the mask it
// can.
func TestMasked(t *testing.T) {
	v := newView(t)
	masks := filepath.Dir(v.Home) + "/masks"
	must.Do(t, errors.Join(os.Mkdir(masks, 0o711), os.Mkdir(masks+"/directory", 0), os.WriteFile(masks+"/file", nil, 0)))
	for _, f := range []string{"/keys/k", "/note", "/open"} {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(v.Home+f), 0o755), os.WriteFile(v.Home+f, []byte("x"), 0o644)))
	}
	masked := v
	masked.Masked = []chat.Exposed{{Source: masks + "/directory", Target: v.Home + "/keys", Mode: chat.ReadOnly}, {Source: masks + "/file", Target: v.Home + "/note", Mode: chat.ReadOnly, File: true}}
	for _, c := range []struct{ do, path, want string }{
		{"read", "/keys/k", "EACCES"}, {"list", "/keys", "EACCES"}, {"read", "/note", "EACCES"}, {"read", "/open", "ok"},
	} {
		if got, _, _ := runIn(t, masked, v.Home+"/attack", c.do, v.Home+c.path); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.do, c.path, got, c.want)
		}
		if got, _, _ := runIn(t, v, v.Home+"/attack", c.do, v.Home+c.path); got != "ok" {
			t.Errorf("without masks: %s %s: %s", c.do, c.path, got)
		}
	}
}
