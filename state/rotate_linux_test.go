package state

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// With rotateDir set the test binary rotates there until it kills itself at the
// step rotateAt.
const (
	rotateDir = "CHATD_STATE_TEST_ROTATE"
	rotateAt  = "CHATD_STATE_TEST_ROTATE_AT"
)

// rotateSteps are the points at which a rotation may be interrupted.
var rotateSteps = []string{"written", "archived", "renamed", "swapped", "kept", "removed"}

// tell writes n numbered events, each followed by a flush, which rotates.
func tell(t testing.TB, s *Store, from, n int) {
	t.Helper()
	for i := range n {
		e := event("run", "intent")
		e.Detail = map[string]string{"n": fmt.Sprint(from + i)}
		must.Do(t, errors.Join(s.Audit(e), s.Flush()))
	}
}

// numbers are the n of all events, in the order of the log.
func numbers(t testing.TB, s *Store) (all []string) {
	t.Helper()
	for _, l := range lines(verified(t, s)) {
		if _, rest, ok := strings.Cut(l, `"n":"`); ok {
			n, _, _ := strings.Cut(rest, `"`)
			all = append(all, n)
		}
	}
	return all
}

func TestRotate(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 2000})
	tell(t, s, 0, 100)
	s = again(t, s)
	tell(t, s, 100, 100)
	var want []string
	for i := range 200 {
		want = append(want, fmt.Sprint(i))
	}
	got := numbers(t, s)
	expect.True(t, slices.Equal(got, want), "the log has %v", got)
	paths := auditFiles(t, s)
	must.True(t, len(paths) >= 5, "200 events made %q", paths)
	for i, path := range paths {
		fi, err := os.Stat(path)
		expect.True(t, err == nil && fi.Mode() == 0o600 && fi.Size() <= 3000,
			"%s: %v, %v", path, fi, err)
		base, err := baseOf(path)
		if i < len(paths)-1 && filepath.Base(path) != archiveName(base.seq+1) || err != nil {
			t.Errorf("%s begins after line %d, %v", path, base.seq, err)
		}
	}
	whole, err := VerifyAudit(paths...)
	expect.True(t, err == nil && whole == len(lines(verified(t, s))),
		"the files have %d lines, %v", whole, err)
	entries, err := os.ReadDir(s.opts.Dir)
	expect.True(t, err == nil && len(entries) == len(paths)+3, "left beside the log: %v, %v", entries, err)
}

func TestNoRotation(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir()})
	tell(t, s, 0, 100)
	paths := auditFiles(t, s)
	expect.True(t, len(paths) == 1, "without a limit: %q", paths)
	for _, o := range []Options{{Dir: t.TempDir(), AuditMax: -1}, {Dir: t.TempDir(), AuditKeep: -1}} {
		_, err := Open(o)
		wantErr(t, fmt.Sprintf("%+v", o), err, chat.ErrInvalid)
	}
}

// Old logs are removed, the rest verifies, and a log that is missing without a record is reported.
func TestRotateKeepsSome(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 2000})
	tell(t, s, 0, 200)
	max := len(auditFiles(t, s))
	s.opts.AuditKeep = 3
	s = again(t, s)
	tell(t, s, 200, 20) // at most maxRemoved a rotation
	tell(t, s, 220, 60)
	paths := auditFiles(t, s)
	must.True(t, max >= 6 && len(paths) == 3+1, "of %d files %q are left", max, paths)
	got := numbers(t, s)
	expect.True(t, got[0] != "0" && got[len(got)-1] == "279", "the log has %v", got)
	expect.NoError(t, expect.Err(VerifyAudit(paths...)))
	for i, path := range paths[:3] {
		must.Do(t, os.Rename(path, path+"-"))
		_, err := s.VerifyAudit()
		wantErr(t, "without file "+fmt.Sprint(i), err, chat.ErrInvalid)
		_, err = VerifyAudit(slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == path })...)
		wantErr(t, "without file "+fmt.Sprint(i), err, chat.ErrInvalid)
		must.Do(t, os.Rename(path+"-", path))
	}
	b := must.Get(os.ReadFile(paths[1]))(t)
	rewrite(t, paths[1], append(b[:200:200], b[201:]...))
	if _, err := s.VerifyAudit(); err == nil || !strings.Contains(err.Error(), filepath.Base(paths[1])) {
		t.Errorf("a full log that was changed: %v", err)
	}
}

// An existing file of an archive's name stops only the rotation, and is not overwritten.
func TestRotateOverwritesNothing(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 2000})
	taken := filepath.Join(s.opts.Dir, archiveName(1))
	rewrite(t, taken, []byte("mine"))
	var failed error
	for i := range 50 {
		e := event("run", "intent")
		e.Detail = map[string]string{"n": fmt.Sprint(i)}
		must.Do(t, s.Audit(e))
		failed = s.Flush()
	}
	if b, err := os.ReadFile(taken); err != nil || string(b) != "mine" || failed == nil {
		t.Errorf("the file holds %q, %v; the rotation said %v", b, err, failed)
	}
	expect.Is(t, expect.Err(os.Lstat(filepath.Join(s.opts.Dir, newName))), fs.ErrNotExist, "left behind")
	must.Do(t, os.Remove(taken))
	tell(t, s, 50, 1)
	if got := numbers(t, s); len(got) != 51 || len(auditFiles(t, s)) != 2 {
		t.Errorf("afterwards %d events in %q", len(got), auditFiles(t, s))
	}
}

// dieRotating writes as a daemon does, prints each confirmed act, and kills itself at the step.
func dieRotating(dir, step string) error {
	s, err := Open(Options{Dir: dir, AuditMax: 2000, AuditKeep: 2})
	if err != nil {
		return err
	}
	after := 4 // rotations that come to an end
	rotateStep = func(at string) {
		if at == step {
			if after--; after == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}
	}
	for i := 0; i < 10000; i++ {
		if _, _, err := s.EnsureBlock(chat.DefaultProfile); err != nil {
			return err
		}
		r, _, err := s.Admit(chat.Spec{ExternalID: fmt.Sprint(i)}, event("create", "intent"))
		if err != nil {
			return err
		}
		fmt.Println(r.UID)
		// This simulates other writers between a flush and its rotation.
		s.writer.Lock()
		s.opts.AuditMax = 0
		err = errors.Join(s.flush(), s.Audit(event("run", "intent")))
		s.opts.AuditMax = 2000
		err = errors.Join(err, s.rotate())
		s.writer.Unlock()
		if err != nil {
			return err
		}
	}
	return errors.New("nothing killed it")
}

// After a kill at any step of a rotation, Open finds one complete log: every event is in it once,
// rotation works, and no stray file is left.
func TestKilledWhileRotating(t *testing.T) {
	for _, step := range rotateSteps {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			last := killRotating(t, dir, step)
			s := open(t, Options{Dir: dir, AuditMax: 2000, AuditKeep: 2})
			expect.Is(t, expect.Err(os.Lstat(filepath.Join(dir, newName))), fs.ErrNotExist, "left aside")
			text := verified(t, s)
			n := strings.Count(text, fmt.Sprintf(`"action":"create","outcome":"intent","chat":"%s"`, idOfUID(t, s, last)))
			expect.True(t, n == 1, "the last create is in the log %d times", n)
			expect.True(t, !strings.Contains(text, `"trouble"`), "it found trouble: %s", text)
			tell(t, s, 0, 60)
			got := numbers(t, s)
			expect.True(t, got[len(got)-1] == "59", "afterwards the log has %v", got)
			paths := auditFiles(t, s)
			expect.True(t, len(paths) == 2+1, "afterwards there are %q", paths)
			verified(t, again(t, s))
		})
	}
}

func idOfUID(t *testing.T, s *Store, uid string) chat.ID {
	t.Helper()
	for _, r := range s.All() {
		if fmt.Sprint(r.UID) == uid {
			return r.ID
		}
	}
	t.Fatalf("nobody has uid %s", uid)
	return ""
}

// killRotating returns the last uid whose admission the child confirmed.
func killRotating(t *testing.T, dir, step string) (last string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rotateDir+"="+dir, rotateAt+"="+step)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must.Do(t, err)
	for in := bufio.NewScanner(out); in.Scan(); {
		last = in.Text()
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v, %s", err, last)
	}
	return last
}

// If the directory cannot be synced after the second rename, the rotation still counts: lines go to
// the log named audit.jsonl.
func TestRotateIsNotMadeSure(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), AuditMax: 2000})
	dir, failed := s.opts.Dir, false
	t.Cleanup(func() { rotateStep = func(string) {} })
	rotateStep = func(at string) {
		if at == "renamed" && !failed {
			failed = os.Rename(dir, dir+"-") == nil // so that it cannot be synced by its name
		}
	}
	written := 0
	for ; !failed && written < 50; written++ {
		e := event("run", "intent")
		e.Detail = map[string]string{"n": fmt.Sprint(written)}
		err := errors.Join(s.Audit(e), s.Flush())
		must.True(t, failed == (err != nil), "failed %t: %v", failed, err)
	}
	must.Do(t, os.Rename(dir+"-", dir))
	tell(t, s, written, 5)
	if n := len(auditFiles(t, s)); n != 2 || len(numbers(t, s)) != written+5 {
		t.Errorf("%d files with %d events of %d", n, len(numbers(t, s)), written+5)
	}
	s = again(t, s)
	if got := numbers(t, s); len(got) != written+5 || strings.Contains(strings.Join(lines(verified(t, s)), ""), "meddl") {
		t.Errorf("after a start: %v", got)
	}
}
