package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// readAll reads the log without the store.
func readAll(t testing.TB, dir string) []AuditLine {
	t.Helper()
	var all []AuditLine
	must.Do(t, ReadAudit(t.Context(), dir, false, func(l AuditLine) error {
		all = append(all, l)
		return nil
	}))
	return all
}

// A log in several files is read as one, while the store is open; a command line is returned whole,
// as a list.
func TestReadAudit(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 4 << 10})
	argv := []string{"sh", "-c", "printf 'a b'\n\x1b[31m", "\u202e"}
	for i := range 100 {
		e := event("run", "intent")
		e.Argv, e.Detail = argv, map[string]string{"run": fmt.Sprint(i)}
		must.Do(t, s.Audit(e))
		must.Do(t, s.Flush())
	}
	files := auditFiles(t, s)
	must.True(t, len(files) >= 3, "%d files", len(files))
	runs := 0
	for i, l := range readAll(t, s.opts.Dir) {
		must.True(t, l.Seq == uint64(i+1), "line %d has seq %d", i+1, l.Seq)
		if l.Action == "run" {
			if strings.Join(l.Argv, "|") != strings.Join(argv, "|") || l.ArgvCut != 0 || l.Detail["run"] != fmt.Sprint(runs) {
				t.Errorf("%+v", l)
			}
			runs++
		}
	}
	expect.True(t, runs == 100, "%d of 100 lines", runs)
}

// Following a log continues across rotations, until the reader stops.
func TestFollowAudit(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 4 << 10})
	ctx, enough := context.WithCancel(t.Context())
	got, ended := make(chan AuditLine, 1000), make(chan error, 1)
	go func() {
		ended <- ReadAudit(ctx, s.opts.Dir, true, func(l AuditLine) error { got <- l; return nil })
	}()
	for range 50 {
		must.Do(t, errors.Join(s.Audit(event("run", "intent")), s.Flush()))
	}
	for seq, runs := uint64(0), 0; runs < 50; {
		l := <-got
		if seq++; l.Seq != seq {
			t.Fatalf("seq %d after %d", l.Seq, seq-1)
		}
		if l.Action == "run" {
			runs++
		}
	}
	enough()
	expect.NoError(t, <-ended)
}

// TestArgvIsBounded: a command line that is too long is cut, and the line records by how much.
func TestArgvIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	many := make([]string, 300)
	for _, c := range []struct {
		argv []string
		kept int
		left int
	}{{[]string{"ls", "-l"}, 2, 0}, {[]string{long, long, long}, 2, 18000 - 8192}, {many, 256, 0}, {nil, 0, 0}} {
		kept, left := cutArgv(c.argv)
		expect.True(t, len(kept) == c.kept && left == c.left,
			"%d arguments: %d kept, %d bytes left out, want %d and %d", len(c.argv), len(kept), left, c.kept, c.left)
	}
	s := fresh(t)
	e := event("run", "denied")
	e.Argv, e.Detail = []string{strings.Repeat("\x01", 1<<20)}, map[string]string{}
	for i := range 40 {
		e.Detail[fmt.Sprint(i, strings.Repeat("\x01", 100))] = strings.Repeat("\x01", 4000)
	}
	must.Do(t, s.Audit(e))
	if verified(t, s); len(readAll(t, s.opts.Dir)) == 0 {
		t.Error("the longest line there is cannot be read")
	}
}

// CheckAudit finds a changed line, and, if it can read the database, a cut-off end.
func TestCheckAudit(t *testing.T) {
	s := fresh(t)
	for range 5 {
		must.Do(t, s.Audit(event("run", "intent")))
	}
	must.Do(t, s.Flush())
	if lines, compared, err := CheckAudit(s.opts.Dir); err != nil || compared || lines != 6 {
		t.Errorf("beside the store: %d, %v, %v", lines, compared, err)
	}
	must.Do(t, s.Close())
	if lines, compared, err := CheckAudit(s.opts.Dir); err != nil || !compared || lines != 6 {
		t.Errorf("alone: %d, %v, %v", lines, compared, err)
	}
	log := filepath.Join(s.opts.Dir, auditName)
	whole := must.Get(os.ReadFile(log))(t)
	lines := strings.SplitAfter(string(whole), "\n")
	for what, c := range map[string]struct {
		text string
		want string
	}{
		"cut":     {strings.Join(lines[:4], ""), "line 6, which the database knows"},
		"changed": {strings.Replace(string(whole), `"seq":3`, `"seq": 3`, 1), "line 4: its prev"},
		"dropped": {strings.Join(append(lines[:2:2], lines[3:]...), ""), "line 3: its seq is 4, want 3"},
	} {
		must.Do(t, os.WriteFile(log, []byte(c.text), 0o600))
		if _, _, err := CheckAudit(s.opts.Dir); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
	must.Do(t, os.WriteFile(log, whole, 0o600))
}

// verify reads one log from its beginning to its first broken line.
func verify(r io.Reader) (lines int, c chain, err error) {
	v := newReading()
	lines, err = v.verdict(v.file(r))
	return lines, v.chain, err
}

// VerifyAudit is [CheckAudit] of some files, without a database.
func VerifyAudit(paths ...string) (lines int, err error) {
	v := newReading()
	for _, path := range paths {
		if err = v.path(path); err != nil {
			break
		}
	}
	if lines, err = v.verdict(err); err != nil {
		return lines, fmt.Errorf("cannot verify audit log: %w", err)
	}
	return lines, nil
}

// VerifyAudit is [CheckAudit] of an open store: the log ends with the last line that was written.
func (s *Store) VerifyAudit() (lines int, err error) {
	files, want, err := s.log.snapshot(s.opts.Dir)
	if err == nil {
		lines, err = verifyUpTo(files, want)
	}
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return lines, fmt.Errorf("cannot verify audit log %s: %w", filepath.Join(s.opts.Dir, auditName), err)
	}
	return lines, nil
}

// verifyUpTo reads the files, of which the last ends with the head.
func verifyUpTo(files []*os.File, want head) (int, error) {
	v := newReading()
	for i, f := range files {
		in := io.Reader(f)
		if i == len(files)-1 {
			in = io.LimitReader(f, want.Offset)
		}
		if err := v.file(in); err != nil {
			return v.verdict(fmt.Errorf("%s: %w", f.Name(), err))
		}
	}
	if v.seq != want.Seq || v.hash != want.Hash {
		return v.verdict(fmt.Errorf("it ends with line %d, want line %d as written: %w", v.seq, want.Seq, chat.ErrInvalid))
	}
	return v.verdict(nil)
}
