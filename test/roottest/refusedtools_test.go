package roottest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/must"
)

// TestRefusedToolsAreLogged: each refused tool leaves a line in the log with tool, error and chat, at
// a level that log_level warn leaves out; a denial names a path below ~ where its rule does.
func TestRefusedToolsAreLogged(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelInfo: 2, slog.LevelWarn: 0} {
		t.Run(level.String(), func(t *testing.T) {
			opt := ruledOptions(t, "access:\n  useDefaults: false\n  deny: ['~/keys/**']\n")
			p := opt.Profiles["ruled"]
			p.ToolsOff = []string{chat.ToolWriteFile}
			opt.Profiles["ruled"] = p
			var log lockedBuffer
			opt.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
			m := open(t, opt)
			defer endEnforcer(t, opt)
			c := sleeper(t, m, "logged")
			putFile(t, c, "keys/k", secret)
			_, err := get(t, m, c.ID, "keys/k")
			if err == nil || !strings.Contains(err.Error(), "Access denied: ~/keys/k blocked by policy") {
				t.Errorf("the denial: %v", err)
			}
			if _, err := m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: "f", Content: new(string)}, nil); err == nil {
				t.Error("a tool that is off works")
			}
			var all []string
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "a tool was refused") {
					all = append(all, line)
				}
			}
			must.True(t, len(all) == want, "at %s: %q", level, all)
			for i, tool := range []string{"tool=read_file", "tool=write_file"}[:want] {
				if !strings.Contains(all[i], tool) || !strings.Contains(all[i], "error=") || !strings.Contains(all[i], "chat="+string(c.ID)) {
					t.Errorf("%q has not %s, error and chat", all[i], tool)
				}
			}
		})
	}
}
