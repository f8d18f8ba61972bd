package sys

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
)

func TestWriters(t *testing.T) {
	for mode, want := range map[uint32]string{
		0o755: "", 0o711: "", 0o775: "a group", 0o757: "everybody", 0o1777: "everybody",
	} {
		got := WritersOf(unix.Stat_t{Mode: mode})
		expect.True(t, (got == "") == (want == "") && strings.HasPrefix(got, want), "%o: %q", mode, got)
	}
	if got := WritersOf(unix.Stat_t{Mode: 0o755, Uid: 7}); !strings.HasPrefix(got, "uid 7") {
		t.Errorf("%q", got)
	}
}
