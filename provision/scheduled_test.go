package provision

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/guard"
	"github.com/chatd/chatd/schedule"
)

// The end of what was printed, in whole characters, whatever the pieces; no more is held.
func TestTail(t *testing.T) {
	for _, c := range []struct {
		pieces []string
		want   string
	}{
		{nil, ""},
		{[]string{"a", "b"}, "ab"},
		{[]string{strings.Repeat("x", 100000), "end"}, strings.Repeat("x", chat.MaxTail-3) + "end"},
		{[]string{strings.Repeat("é", chat.MaxTail) + "x"}, strings.Repeat("é", (chat.MaxTail-1)/2) + "x"},
		{[]string{"\xff\x80a"}, "\ufffda"},
	} {
		var out tail
		n := 0
		for _, p := range c.pieces {
			out.write("stdout", []byte(p))
			n += len(p)
			if cap(out.kept) > 4*chat.MaxTail {
				t.Errorf("%d bytes are held", cap(out.kept))
			}
		}
		if r := out.result(chat.RunResult{Exit: 3}); r.Output != c.want || r.OutputBytes != int64(n) || r.Exit != 3 {
			t.Errorf("%.20q: %.40q of %d, %+v", c.pieces, r.Output, len(r.Output), r.OutputBytes)
		}
	}
}

// What went wrong on the host is not told to whoever reads the result; what was denied
// has its rule, unless the rules are vague.
func TestWhyNot(t *testing.T) {
	m := &Manager{log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if got := m.whyNot(t.Context(), schedule.Due{}, errors.New("cannot open /var/lib/chatd/secret")); strings.Contains(got, "/var") || !strings.HasPrefix(got, "internal") {
		t.Errorf("%q", got)
	}
	if got := m.whyNot(t.Context(), schedule.Due{}, fmt.Errorf("cannot run: %s: %w", strings.Repeat("x", 5000), chat.ErrBusy)); len(got) != 1<<10 {
		t.Errorf("%d bytes", len(got))
	}
	v := guard.Verdict{Denied: true, Rule: "rm-rf"}
	if got := deniedBy(errors.Join(v.Err(), nil)); got != "rm-rf" {
		t.Errorf("%q", got)
	}
	v.Vague = true
	if got := deniedBy(v.Err()); got != "" {
		t.Errorf("%q", got)
	}
}
