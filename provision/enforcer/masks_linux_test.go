package enforcer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestMasks: the sources of masks lie beside the enforcer's directory, where the enforcer looks for
// them, and nobody can read them.
func TestMasks(t *testing.T) {
	needsRoot(t)
	run := t.TempDir()
	c := of(filepath.Join(run, "keeper"))
	must.Do(t, c.MakeMasks(), c.MakeMasks())
	if fi, err := os.Stat(c.masksDir()); err != nil || fi.Mode().Perm() != 0o711 {
		t.Errorf("bubblewrap, as the chat, cannot pass: %v, %v", fi, err)
	}
	for _, name := range []string{orders.ClosedFile, orders.ClosedDirectory} {
		fi, err := os.Stat(filepath.Join(run, orders.StartMasks, name))
		expect.True(t, err == nil && fi.Mode().Perm() == 0 && fi.IsDir() == (name == orders.ClosedDirectory),
			"%s: %v, %v", name, fi, err)
	}
	_, err := of("/none/keeper").probe(t.Context(), Session{})
	expect.Is(t, err, chat.ErrUnsupported, "without an enforcer")
}

// TestMaskedPaths: bubblewrap masks files and directories that are there, reached by no link, which
// hide no mount and which no session can write to.
func TestMaskedPaths(t *testing.T) {
	home, host := t.TempDir(), t.TempDir()
	must.Do(t, os.Mkdir(host+"/secret", 0o700), os.Symlink("secret", host+"/way"),
		os.Symlink("x", host+"/link"))
	for _, file := range []string{home + "/key", host + "/secret/y", host + "/x"} {
		must.Do(t, os.WriteFile(file, nil, 0o600))
	}
	v := plan.View{Home: home, Exposed: []chat.Exposed{
		{Source: host, Target: "/data", Mode: chat.ReadOnly},
		{Source: host, Target: "/rw", Mode: chat.ReadWrite},
	}}
	c := of("/run/chatd/keeper")
	for p, want := range map[string]string{
		"/data/secret": orders.ClosedDirectory, "/data/x": orders.ClosedFile, "/data/link": "",
		"/data/way/y": "", home + "/key": "",
		"/rw/x": "", "/data": "", "/data/none": "", home: "", "/etc/passwd": "",
	} {
		got := c.Masks(v, []string{p})
		if len(got) != min(len(want), 1) {
			t.Errorf("%s: %+v, want %q", p, got, want)
			continue
		}
		mask := chat.Exposed{Target: p, Mode: chat.ReadOnly, File: want == orders.ClosedFile,
			By: "file rules", Source: filepath.Join("/run/chatd", orders.StartMasks, want)}
		if want != "" && got[0] != mask {
			t.Errorf("%s: %+v, want %+v", p, got[0], mask)
		}
	}
}
