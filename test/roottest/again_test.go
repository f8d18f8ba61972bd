package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// screenOf is the text of a chat's terminal, with what was scrolled away.
func screenOf(t *testing.T, m *manager, id chat.ID) chat.Screen {
	t.Helper()
	s := must.Get(m.ScreenWith(operator(t.Context()), id, chat.ScreenSpec{History: 500}))(t)
	return s
}

// checkDir fails unless the chat's shell is in dir.
func checkDir(t *testing.T, m *manager, c chat.Chat, dir string) {
	t.Helper()
	typed(t, m, c.ID, "pwd -P >~/pwd")
	if got, err := os.ReadFile(filepath.Join(c.Home, "pwd")); err != nil || string(got) != dir+"\n" {
		t.Errorf("the shell is in %q, want %q: %v", got, dir, err)
	}
}

// TestTerminalOverSleep: after a sleep the shell is in its last directory, whatever its name, the
// terminal has its size, and shows again what it showed. The log has that once, and goes on.
func TestTerminalOverSleep(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "again", "default")
	odd := "a dir\n'\"$(touch no) \xff (deleted)"
	must.Do(t, os.MkdirAll(filepath.Join(c.Home, odd), 0o777))
	must.Do(t, os.Chmod(filepath.Join(c.Home, odd), 0o777))
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Size: &chat.TTY{Rows: 30, Cols: 90}}))
	expect.Equal(t, typed(t, m, c.ID, `stty size; printf '%0100d\e[5GX'`).Plain, "30 90\n"+strings.Repeat("0", 94)+"X00000",
		"of another size")
	typed(t, m, c.ID, "for i in {1..100}; do echo before-$i; done; cd a*")
	for round := range 2 {
		must.Get(m.Sleep(ctx, c.ID))(t)
		must.Get(m.Wake(ctx, c.ID))(t)
		s := screenOf(t, m, c.ID)
		expect.True(t, s.Cols == 90 && s.Rows == 30,
			"the terminal has %d columns and %d rows", s.Cols, s.Rows)
		texts := map[string]int{"before-1\n": 1, "before-100\n": 1, "above is what": round + 1,
			"no log of this terminal": 0} // the writer began as soon as it was asked to
		for want, times := range texts {
			if n := strings.Count(s.Text, want); n != times {
				t.Errorf("round %d: %q is there %d times in %q", round, want, n, s.Text)
			}
		}
		expect.Equal(t, typed(t, m, c.ID, "tmux show -wv window-size").Plain, "",
			"window-size of its own")
		checkDir(t, m, c, filepath.Join(c.Home, odd))
	}
	log := must.Get(m.Log(ctx, c.ID, -1))(t)
	text := string(log.Bytes())
	expect.Equal(t, strings.Count(text, "before-57\r\n"), 1, "the log has a line … times")
	if !strings.Contains(text, "show -wv") || strings.Contains(text, "writer of this log has ended") {
		t.Errorf("the log ends in %q", text[max(0, len(text)-1000):])
	}
	expect.True(t, !exists(filepath.Join(c.Home, "no"))(), "a directory's name was run")
}

// TestAttackTerminalOverSleep: whatever a chat leaves where its terminal is written down, it sleeps
// and wakes, with a shell at home and the size of a new terminal.
func TestAttackTerminalOverSleep(t *testing.T) {
	m := open(t, options(t))
	ctx := operator(t.Context())
	c := create(t, m, "hostile", "default")
	// The server's job writes the file; without the job what the chat wrote is left.
	const stop = "tmux set-environment -g XDG_STATE_HOME /; " +
		"f=$XDG_STATE_HOME/chatd-terminal; rm -f $f; "
	for what, line := range map[string]string{
		"a directory that is gone":   "mkdir -p ~/gone; cd ~/gone; rmdir ~/gone",
		"a link to elsewhere":        "mkdir -p ~/gone; cd ~/gone; rmdir ~/gone; ln -s /etc ~/gone",
		"a fifo":                     stop + "mkfifo $f",
		"a directory":                stop + "mkdir $f; touch $f/x",
		"a device":                   stop + "ln -s /dev/zero $f",
		"nothing but text":           stop + "yes | head -c 3M >$f",
		"a size that is none":        stop + `printf '9;touch\t9\n/tmp\0text' >$f`,
		"a size beyond all":          stop + `printf '99999 99999\n/tmp\0text' >$f`,
		"a long directory":           stop + `printf '120 40\n/%09000d\0text' 0 >$f`,
		"a server that says nothing": "kill -STOP $(tmux display -p '#{pid}')",
	} {
		must.Do(t, m.Input(ctx, c.ID, chat.Input{Text: line, Enter: true}))
		if what == "a server that says nothing" {
			until(t, "the server stands", func() bool {
				all := must.Get(m.Processes(ctx, c.ID))(t)
				for _, p := range all.Processes {
					if strings.HasPrefix(p.Name, "tmux") && p.State == chat.ProcessStopped {
						return true
					}
				}
				return false
			})
		} else {
			typed(t, m, c.ID, "true")
		}
		must.Get(m.Sleep(ctx, c.ID))(t)
		must.Get(m.Wake(ctx, c.ID))(t)
		s := screenOf(t, m, c.ID)
		expect.True(t, s.Cols == 120 && s.Rows == 40,
			"%s: the terminal has %d columns and %d rows", what, s.Cols, s.Rows)
		checkDir(t, m, c, c.Home)
		typed(t, m, c.ID, "rm -rf $XDG_STATE_HOME/chatd-terminal ~/gone")
	}
}
