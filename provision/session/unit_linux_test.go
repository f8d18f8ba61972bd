package session

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/chatd/chatd/cgroup"
	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// startGroups record the command to start.
type startGroups struct {
	StartGroups
	cmd *exec.Cmd
}

// StartPrepared records the command.
func (g *startGroups) StartPrepared(_ chat.ID, _ string, cmd *exec.Cmd, _ cgroup.Prepare) error {
	g.cmd = cmd
	return nil
}

// TestLaunch: without systemd Launch starts bubblewrap itself. With systemd it starts chatd-shim
// enter with the entry, bubblewrap's own descriptors, and the streams, in this order.
func TestLaunch(t *testing.T) {
	p := Spec{Chat: "0123456789abcdef", Argv: []string{"true"}}
	p.View.Without = []chat.LayerName{chat.LayerTmp, chat.LayerView}
	p.View.UID, p.View.Home = 70001, "/home/a"
	for _, units := range []bool{false, true} {
		var g startGroups
		var b Files
		s := New(Options{Groups: &g, Units: units, Shim: "/shim"})
		bwrap := s.Bubblewrap(p, &b)
		bwrap.Stdin, bwrap.Err = os.Stdin, nil // whether or not this host has bwrap
		bwrap.Stdout = b.Output("stdout")      // as of a probe
		if err := s.Launch(p, bwrap, &b); err != nil || b.Err != nil {
			t.Fatal(err, b.Err)
		}
		if units {
			checkEntry(t, g.cmd, bwrap)
		} else if g.cmd != bwrap {
			t.Errorf("started %v", g.cmd.Args)
		}
		b.Close()
	}
}

func checkEntry(t *testing.T, cmd, bwrap *exec.Cmd) {
	t.Helper()
	files := slices.Concat(bwrap.ExtraFiles,
		[]*os.File{os.Stdin, bwrap.Stdout.(*os.File), bwrap.Stderr.(*os.File)})
	if cmd.Path != "/shim" || !slices.Equal(cmd.ExtraFiles[1:], files) ||
		cmd.SysProcAttr.Credential.Uid != 70001 {
		t.Errorf("%s gets %d files, want the entry and %d",
			cmd.Path, len(cmd.ExtraFiles), len(files))
	}
	text, err := io.ReadAll(io.NewSectionReader(cmd.ExtraFiles[0], 0, 1<<16))
	var e plan.Entry
	must.Do(t, errors.Join(err, json.Unmarshal(text, &e)))
	expect.True(t, e.Stdin && slices.Equal(e.Argv[1:], bwrap.Args[1:]) && len(e.Own) == 0,
		"the entry is %s", text)
}
