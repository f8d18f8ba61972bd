package roottest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
)

// TestScanFindsWhatReapLeaves: a file of a reaped uid where no layout leads is found, and named in
// the findings and the audit log with its chat, once; files of the living are not, nor is any
// removed. The finding outlives chatd.
func TestScanFindsWhatReapLeaves(t *testing.T) {
	if onHost() {
		t.Skip("the scan walks the mounts of pid 1, which does not see those of the tests")
	}
	opt := options(t)
	stray := filepath.Join(filepath.Dir(opt.State), "strays")
	must(t, os.MkdirAll(stray, 0o700))
	mountEmpty(t, stray)
	opt.ScanEvery, opt.ScanUnder = 20*time.Millisecond, []string{stray}
	m := open(t, opt)
	gone, stays := asleep(t, m, "leaves a file"), asleep(t, m, "stays")
	put := func(c chat.Chat, name string) string {
		name = filepath.Join(stray, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, nil, 0o600))
		must(t, os.Chown(name, int(c.UID), int(c.UID)))
		return name
	}
	left, living := put(gone, "copied by root/notes"), put(stays, "shared/notes")
	findings := func(m *manager) string {
		h, err := m.Host(operator(t.Context()))
		must(t, err)
		return strings.Join(h.Findings, "\n")
	}
	if f := findings(m); strings.Contains(f, stray) || strings.Contains(f, "scan") {
		t.Errorf("before a reap: %s", f)
	}
	must(t, m.Reap(operator(t.Context()), gone.ID))
	want := fmt.Sprintf("1 files belong to uid %d (chat %s, reaped), as %q", gone.UID, gone.ID,
		left)
	find := fmt.Sprintf("find %s -xdev -uid %d", stray, gone.UID)
	check := func(m *manager) {
		t.Helper()
		until(t, "the file is found", func() bool { return strings.Contains(findings(m), want) })
		if f := findings(m); !strings.Contains(f, find) || strings.Contains(f, living) {
			t.Errorf("the findings are %s", f)
		}
	}
	check(m)
	mountEmpty(t, "/var/log/journal")
	journal := fileTrace("a journal", "/var/log/journal/6f/user-UID.journal", false)
	journal.put(t, stays)
	journal.put(t, gone) // as journald does that rotates its files
	until(t, "a journal that was made anew goes", func() bool { return !journal.has(t, gone) })
	if !journal.has(t, stays) {
		t.Error("the journal of the living is gone")
	}
	must(t, m.Close())
	again, err := openManager(t.Context(), opt)
	must(t, err)
	*m = *again
	check(m)
	must(t, m.Reap(operator(t.Context()), stays.ID)) // one more turn, which finds the first again
	until(t, "the other is found", func() bool { return strings.Contains(findings(m), living) })
	log, err := os.ReadFile(filepath.Join(opt.State, "audit.jsonl"))
	must(t, err)
	lines := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `"action":"scan"`) && strings.Contains(line, left) {
			lines++
			named := strings.Contains(line, string(gone.ID))
			if !named || !strings.Contains(line, `"outcome":"left"`) {
				t.Errorf("the audit log has %s", line)
			}
		}
	}
	if lines != 1 || !exists(left)() || !exists(living)() {
		t.Errorf("%d lines in the audit log name the file; it is there: %v", lines, exists(left)())
	}
}
