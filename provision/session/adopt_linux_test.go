package session

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// knownGroups are cgroups with a fixed content and a fixed invocation of the unit.
type knownGroups struct {
	StartGroups
	members    []int
	invocation string
	asked      error // what became of the question for the invocation
}

func (g knownGroups) Members(chat.ID) ([]int, error)     { return g.members, nil }
func (g knownGroups) Invocation(chat.ID) (string, error) { return g.invocation, g.asked }

// TestAdopt: chatd adopts a session only when all agree: the boot, the start time, the uid, the
// cgroup and the unit's invocation.
func TestAdopt(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must.Do(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	init := must.Get(sys.OpenProcess(sys.Process{PID: cmd.Process.Pid}))(t)
	defer init.Close()
	init.Boot = "this boot"
	same := knownGroups{members: []int{1, init.PID}, invocation: "a"}
	for name, c := range map[string]struct {
		start   uint64
		boot    string
		version string // replaces the version in the file
		uid     uint32
		groups  knownGroups
		refused string
	}{
		"the same":        {groups: same},
		"another boot":    {groups: same, boot: "another", refused: "another boot"},
		"another process": {groups: same, start: init.Start + 1, refused: "started at tick"},
		"no version":      {groups: same, version: `"x":0`, refused: "is of version 0"},
		"another version": {groups: same, version: `"version":2`, refused: "is of version 2"},
		"another uid":     {groups: same, uid: 1, refused: "is of uid"},
		"another cgroup": {
			groups: knownGroups{members: []int{1}, invocation: "a"}, refused: "not in its cgroup",
		},
		"systemd is silent": {
			groups:  knownGroups{members: []int{init.PID}, asked: chat.ErrBusy},
			refused: ErrUnverified.Error(),
		},
		"another invocation": {
			groups:  knownGroups{members: []int{init.PID}, invocation: "b"},
			refused: "started again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Dir{Parent: t.TempDir(), Chat: "0123456789abcdef"}
			d.UID = uint32(os.Getuid()) + c.uid
			must.Do(t, os.Mkdir(d.Path(), 0o700))
			held := *init
			if held.Boot, held.Start = "this boot", init.Start; c.boot != "" {
				held.Boot = c.boot
			}
			if c.start != 0 {
				held.Start = c.start
			}
			masked := []string{"/masked"}
			written := &Session{Chat: d.Chat, UID: d.UID, Init: &held, saved: saved{Invocation: "a"}}
			written.Masked.Store(&masked)
			must.Do(t, written.Write(d))
			if c.version != "" {
				file := filepath.Join(d.Path(), savedFile)
				b, err := os.ReadFile(file)
				if err == nil {
					err = os.WriteFile(file, bytes.Replace(b, []byte(`"version":1`), []byte(c.version), 1), 0o600)
				}
				must.Do(t, err)
			}
			checkAdopted(t, New(Options{Groups: c.groups, Boot: "this boot"}), d, c.refused)
		})
	}
}

// checkAdopted adopts the session of d, or expects the refusal.
func checkAdopted(t *testing.T, s *Starter, d Dir, refused string) {
	t.Helper()
	in, err := s.Adopt(d)
	switch {
	case refused != "":
		expect.True(t, err != nil && strings.Contains(err.Error(), refused),
			"adopted, or refused for another reason: %v; want %q", err, refused)
		if later := errors.Is(err, ErrUnverified); later != (refused == ErrUnverified.Error()) {
			t.Errorf("refused by %q: adopted later: %t", refused, later)
		}
	case err != nil:
		t.Error(err)
	default:
		defer in.Init.Close()
		if m := in.Masked.Load(); in.Invocation != "a" || m == nil || len(*m) != 1 {
			t.Errorf("adopted as %q with masks %v", in.Invocation, m)
		}
	}
}
