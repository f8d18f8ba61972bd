package state

import (
	"errors"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// TestCheckGiven: a database is refused for each uid in its range that owns paths and was never
// given, except the probes' uid; the error names some of the paths.
func TestCheckGiven(t *testing.T) {
	given := func(uid uint32) bool { return uid < 110 }
	check := func(owners map[uint32]string) error {
		return CheckGiven("/state", given, Range{100, 139}, owners)
	}
	known := map[uint32]string{0: "root", 99: "below", 100: "first", 109: "given", 139: "probe",
		140: "above"}
	for _, owners := range []map[uint32]string{nil, known} {
		expect.Is(t, check(owners), nil, "%v", owners)
	}
	known[110] = "/homes/a"
	err := check(known)
	if !errors.Is(err, chat.ErrExists) ||
		!strings.Contains(err.Error(), "never heard of /homes/a of uid 110: restore chatd.db") {
		t.Errorf("%v", err)
	}
	for uid := uint32(111); uid <= 138; uid++ {
		known[uid] = "/homes/b"
	}
	err = check(known)
	if err == nil || !strings.Contains(err.Error(), "/homes/b of uid 114, 24 more: restore") ||
		strings.Contains(err.Error(), "uid 115") {
		t.Errorf("%v", err)
	}
}
