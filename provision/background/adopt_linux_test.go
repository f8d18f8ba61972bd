package background

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// leaves are empty cgroups of runs.
type leaves map[string]bool

func (l leaves) Runs(chat.ID) (all []string, _ error) {
	for run := range l {
		all = append(all, run)
	}
	return all, nil
}
func (leaves) Members(chat.ID) ([]int, error)                              { return nil, nil }
func (leaves) KillRun(context.Context, chat.ID, string) error              { return nil }
func (leaves) CreateRun(chat.ID, string) error                             { return nil }
func (leaves) Start(chat.ID, string, *exec.Cmd) error                      { return nil }
func (leaves) TakeOut(context.Context, int) error                          { return nil }
func (leaves) SignalRun(chat.ID, string, syscall.Signal, int) (int, error) { return 0, nil }
func (l leaves) RemoveRun(_ chat.ID, run string) error {
	delete(l, run)
	return nil
}
func (leaves) OpenKill(chat.ID, string) (*os.File, error) {
	return os.Open(os.DevNull)
}
func (leaves) RunUsage(chat.ID, string) (chat.Usage, error) {
	return chat.Usage{OOMKills: 3, MemoryPeak: 7}, nil
}

// self is this process, as the record of a run names a supervisor.
func self(t *testing.T) sys.Process {
	t.Helper()
	boot := must.Get(sys.BootID())(t)
	s := must.Get(sys.ReadStat(os.Getpid()))(t)
	return sys.Process{PID: os.Getpid(), Start: s.Start, Boot: boot}
}

// writeRun writes the files of a run.
func writeRun(t *testing.T, dir, run string, files map[string]string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Join(dir, string(someone), run), 0o700))
	for name, text := range files {
		file := filepath.Join(dir, string(someone), run, name)
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
}

// TestAdopt uses the names of files and keys that every chatd writes. A run goes on only where its
// supervisor is the process that the record names, of this boot and of its uid.
func TestAdopt(t *testing.T) {
	p := self(t)
	now := time.Now().UTC().Format(time.RFC3339)
	old := time.Now().Add(-chat.RunRetention - time.Minute).UTC().Format(time.RFC3339)
	record := func(run string, s sys.Process, more string) string {
		return fmt.Sprintf(`{"run":{"id":%q,"state":"running","background":true,`+
			`"output_max":4096,"timeout":"1h","started_at":%q%s},"grace":1000000000,"nsenter":77,"refused":5,`+
			`"taken":"2026-11-23T00:00:00Z","minder":{"pid":%d,"start":%d,"boot":%q}}`,
			run, now, more, s.PID, s.Start, s.Boot)
	}
	dead, other := p, p
	dead.Start, other.Boot = p.Start+1, "another"
	result := `{"state":"ended","at":%q,"result":{"exit":4},"tail":"eA=="}`
	for _, c := range []struct {
		name, want string
		files      map[string]string
	}{
		{"goes-on", "goes on", map[string]string{"run.json": record("goes-on", p, "")}},
		{"foreign", "lost", map[string]string{"run.json": record("foreign", p, "")}},
		{"died", "exit 2", map[string]string{"run.json": record("died", dead, ""),
			"end": `{"status":512,"at":"2026-11-23T00:00:00Z"}`, "stdout": "", "stderr": ""}},
		{"lost", "lost", map[string]string{"run.json": record("lost", dead, "")}},
		{"over", "exit 4", map[string]string{"run.json": record("over", dead, ""),
			"result.json": fmt.Sprintf(result, now)}},
		{"old", "gone", map[string]string{"run.json": record("old", dead, ""),
			"result.json": fmt.Sprintf(result, old)}},
		{"reboot", "gone", map[string]string{"run.json": record("reboot", other, "")}},
		{"name", "gone", map[string]string{"run.json": record("else", p, "")}},
		{"sizeless", "gone", map[string]string{"run.json": record("sizeless", p, `,"output_max":0`)}},
		{"odd", "gone", map[string]string{"run.json": record("odd", p, `,"output_max":-1`)}},
		{"foreground", "gone", map[string]string{
			"run.json": strings.Replace(
				record("foreground", dead, ""), `"background":true,`, "", 1),
			"result.json": fmt.Sprintf(result, now)}},
		{"begun", "gone", map[string]string{"stdout": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, groups := t.TempDir(), leaves{c.name: true, "stray": true}
			uid := uint32(os.Getuid())
			if c.name == "foreign" {
				uid++
			}
			a := New(Options{Dir: dir, UID: uid, Groups: groups})
			writeRun(t, dir, c.name, c.files)
			expect.Equal(t, adopted(t, a), c.want, "")
			left, err := os.ReadDir(filepath.Join(dir, string(someone)))
			expect.True(t, err == nil && (len(left) == 0) == (c.want == "gone"), "left are %v, %v", left, err)
			expect.True(t, !groups["stray"], "the leaf of no run is left")
			if stays := c.want == "goes on" || c.name == "over"; groups[c.name] != stays {
				t.Errorf("its leaf stays: %t, want %t", groups[c.name], stays)
			}
		})
	}
}

// adopted is what became of the one run of a chat.
func adopted(t *testing.T, a *Runs) string {
	t.Helper()
	runs := must.Get(a.Adopt(t.Context(), someone, "a", 4000000007))(t)
	expect.True(t, slices.Equal(runs, a.Of(someone)),
		"adopted %d runs, %d are registered", len(runs), len(a.Of(someone)))
	if len(runs) == 0 {
		return "gone"
	}
	r := runs[0]
	expect.True(t, r.Refused == 5 && r.Grace == time.Second && !r.Taken.IsZero() && r.pid() == 77,
		"%+v, nsenter %d", r.About, r.pid())
	if r.Supervised() {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, over, err := r.Watch(ctx); over || err != nil || r.IsOver() {
			t.Errorf("a watch that chatd's end ends: over %t, %v", over, err)
		}
		return "goes on"
	}
	if !r.IsOver() {
		end(t, a, r)
	}
	e, err := r.Ended()
	if errors.Is(err, chat.ErrWrongPhase) {
		return "lost"
	}
	return fmt.Sprintf("exit %d", e.Result.Exit)
}

// end ends a run whose supervisor has ended, and checks the record of its end.
func end(t *testing.T, a *Runs, r *Run) {
	t.Helper()
	e, over, err := r.Watch(t.Context())
	expect.True(t, over && err == nil && e.OOMKills == 3 && e.Result.MemoryPeak == 7,
		"%+v, over %t, %v", e, over, err)
	if _, err := r.Keep(e); err != nil || !r.IsOver() {
		t.Errorf("kept: %v, over %t", err, r.IsOver())
	}
	text, err := os.ReadFile(filepath.Join(a.opt.Dir, string(someone), r.Info.ID, "result.json"))
	expect.True(t, err == nil && strings.HasPrefix(string(text), `{"state":"`+string(e.State)+`","at":`),
		"%s, %v", text, err)
}

// TestTimeLeft: the timeout of an adopted run is what it was, also when the clock was set by a year
// since the run began.
func TestTimeLeft(t *testing.T) {
	p := self(t)
	for _, years := range []int{-1, 0, 1} {
		dir := t.TempDir()
		a := New(Options{Dir: dir, UID: uint32(os.Getuid()), Groups: leaves{"run": true}})
		writeRun(t, dir, "run", map[string]string{"run.json": fmt.Sprintf(`{"run":{"id":"run",`+
			`"state":"running","background":true,"output_max":4096,"timeout":"1h","started_at":%q},`+
			`"minder":{"pid":%d,"start":%d,"boot":%q}}`,
			time.Now().AddDate(years, 0, 0).UTC().Format(time.RFC3339), p.PID, p.Start, p.Boot)})
		runs, err := a.Adopt(t.Context(), someone, "ada", 4242)
		must.True(t, err == nil && len(runs) == 1 && runs[0].supervisor != nil, "%+v, %v", runs, err)
		left := runs[0].timeLeft(runs[0].supervisor)
		expect.True(t, left > 0 && left <= time.Hour, "a clock %d years off leaves it %s", years, left)
		expect.NoError(t, runs[0].supervisor.Close())
	}
}
