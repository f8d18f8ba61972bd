package journal

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// A line for the journal begins with its priority and says no time; it is one
// line, whatever it is about.
func TestJournalLines(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newJournalHandler(&b))
	log.Info("serving", "time", "noon")
	log.Warn("two\nlines", "chat", "<1>\n<0>x")
	log.Error("broken")
	log.Debug("not shown")
	log.With("a", 1).WithGroup("g").Warn("grouped", "level", "deep")
	log.Log(t.Context(), slog.LevelError+4, "worse")
	want := `<6>msg=serving time=noon
<4>msg="two\nlines" chat="<1>\n<0>x"
<3>msg=broken
<4>msg=grouped a=1 g.level=deep
<3>msg=worse
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The journal's lines go only where systemd said the journal is.
func TestIsJournal(t *testing.T) {
	f := must.Get(os.Create(filepath.Join(t.TempDir(), "stderr")))(t)
	defer f.Close()
	var st unix.Stat_t
	must.Do(t, unix.Fstat(int(f.Fd()), &st))
	for _, c := range []struct {
		stream string
		want   bool
	}{
		{"", false}, {"9:999", false}, {fmt.Sprintf("%d:%d", st.Dev, st.Ino), true}, {fmt.Sprintf("%d:%d", st.Dev, st.Ino+1), false},
	} {
		t.Setenv("JOURNAL_STREAM", c.stream)
		expect.Equal(t, isJournal(f), c.want, "JOURNAL_STREAM=%s", c.stream)
		New(f).Info("x")
		if got := Priority(f) == "<3>"; got != c.want {
			t.Errorf("JOURNAL_STREAM=%s: last words have priority %q", c.stream, Priority(f))
		}
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || bytes.Count(b, []byte("time=")) != 3 || bytes.Count(b, []byte("<6>msg=x")) != 1 {
		t.Errorf("written: %s, %v", b, err)
	}
}
