package leftovers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/scan"
	"github.com/chatd/chatd/shims"
	"github.com/chatd/chatd/sys"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CHATD_TEST_REQUIRE") == "all" {
			t.Fatal("needs root, and CHATD_TEST_REQUIRE=all")
		}
		t.Skip("SKIPPED: needs root")
	}
}

const spentUID = 1999990001

// disk is a file system in a mount namespace of its own.
type disk struct {
	top, namespace string
	walker         Walker
}

// newDisk builds chatd-shim too, whose mode is the walker. In the namespace its name is another
// file's.
func newDisk(t *testing.T) disk {
	t.Helper()
	needsRoot(t)
	dir, err := os.MkdirTemp("", "chatd-scan-") // the walker's uid can reach it
	must(t, err, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	d := disk{top: filepath.Join(dir, "top")}
	shim := filepath.Join(dir, shims.ProgramName)
	build := exec.Command("go", "build", "-o", shim, "../cmd/chatd-shim")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.Mkdir(d.top, 0o700))
	stay, there := make(chan struct{}), make(chan error)
	go func() {
		there <- sys.OnThread(func() error {
			err := errors.Join(unix.Unshare(unix.CLONE_NEWNS),
				unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
				unix.Mount("/dev/null", shim, "", unix.MS_BIND, ""),
				unix.Mount("tmpfs", d.top, "tmpfs", 0, "mode=700"))
			d.namespace = fmt.Sprintf("/proc/%d/task/%d/ns/mnt", os.Getpid(), unix.Gettid())
			there <- err
			<-stay
			return nil
		})
	}()
	must(t, <-there)
	t.Cleanup(func() { close(stay); must(t, <-there) })
	d.walker = Walker{
		Program: shim, Name: shims.ProgramName, UID: spentUID + 100, Namespace: d.namespace,
	}
	return d
}

// in runs act where the disk is mounted.
func (d disk) in(t *testing.T, act func() error) {
	t.Helper()
	ns, err := os.Open(d.namespace)
	must(t, err, sys.InMountNamespace(ns, act), ns.Close())
}

func (d disk) add(t *testing.T, uid int, names ...string) {
	t.Helper()
	d.in(t, func() error {
		var errs []error
		for _, name := range names {
			name = filepath.Join(d.top, name)
			errs = append(errs, os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0),
				os.Chown(name, uid, 0))
		}
		return errors.Join(errs...)
	})
}

// scanner is one of which Look is called by the test.
func (d disk) scanner(t *testing.T, spent *[]scan.Range, report func(Left)) *Scanner {
	return NewScanner(ScannerOptions{
		Walker: d.walker, File: filepath.Join(filepath.Dir(d.top), "scan.json"),
		Spent: func() []scan.Range { return *spent },
		Chats: func(_ context.Context, uids []uint32) (map[uint32]string, error) {
			return map[uint32]string{spentUID: "0123456789abcdef"}, nil
		},
		Report: report, Under: []string{d.top}, Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
	})
}

type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func names(l Left) (all []string) {
	for _, p := range l.First {
		all = append(all, string(p))
	}
	slices.Sort(all)
	return all
}

// TestScanner: files of spent uids are found in directories that only root may enter, reported
// once, known after a restart, and forgotten when they are gone. One pass is for all uids that
// were spent since the last.
func TestScanner(t *testing.T) {
	d := newDisk(t)
	d.add(t, spentUID, "a/x", "b/c/hostile\n\x1b[2J")
	d.add(t, spentUID+1, "a/living")
	spent := []scan.Range{}
	var told []Left
	s := d.scanner(t, &spent, func(l Left) { told = append(told, l) })
	s.Try(t.Context())
	s.Look(t.Context())
	if len(told) > 0 || s.Fault() != nil || exists(s.opt.File) {
		t.Fatalf("without a spent uid it reports %v, %v", told, s.Fault())
	}
	spent = []scan.Range{{spentUID, spentUID}}
	s.Look(t.Context())
	want := []string{d.top + "/a/x", d.top + "/b/c/hostile\n\x1b[2J"}
	if len(told) != 1 || told[0].Chat != "0123456789abcdef" || told[0].Files != 2 ||
		!reflect.DeepEqual(names(told[0]), want) {
		t.Fatalf("it reports %+v, %v", told, s.Fault())
	}
	d.add(t, spentUID, "later")
	for range 2 { // the second is a restart
		s.Look(t.Context())
		if left, _ := s.Left(); len(told) != 1 || len(left) != 1 {
			t.Fatalf("without another spent uid it looks again: %+v, %+v", told, left)
		}
		s = d.scanner(t, &spent, func(l Left) { told = append(told, l) })
	}
	spent = []scan.Range{{spentUID, spentUID + 1}}
	s.Look(t.Context())
	if len(told) != 3 || told[1].Files != 3 || told[2].UID != spentUID+1 || told[2].Chat != "" {
		t.Fatalf("with another spent uid it reports %+v", told)
	}
	d.in(t, func() error { return os.RemoveAll(d.top + "/a") })
	s.state.Ended = time.Now().Add(-2 * rescanAfter)
	s.Look(t.Context())
	if left, _ := s.Left(); len(told) != 3 || len(left) != 1 || left[0].Files != 2 {
		t.Errorf("a day later it has %+v, %+v", left, told)
	}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// TestScanWaitsForNoServer: a FUSE file system that never answers is mounted on a directory and on
// a file, and covers nothing else.
func TestScanWaitsForNoServer(t *testing.T) {
	d := newDisk(t)
	if !exists("/dev/fuse") {
		t.Skip("SKIPPED: needs /dev/fuse")
	}
	d.add(t, spentUID, "a", "dir/hidden", "file", "z/y")
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fuse) // ends the waiting
	other, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(other)
	d.in(t, func() error {
		const options = "fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other"
		dir := fmt.Sprintf(options, fuse, unix.S_IFDIR)
		file := fmt.Sprintf(options, other, unix.S_IFREG)
		return errors.Join(unix.Mount("hangs", d.top+"/dir", "fuse", 0, dir),
			unix.Mount("hangs", d.top+"/file", "fuse", 0, file))
	})
	d.walker.Grace = 10 * time.Second
	var found []string
	end, err := d.walker.turn(t.Context(), scan.Request{
		Spent: []scan.Range{{spentUID, spentUID}}, Entries: 1000, Seconds: 1,
		Under: []string{d.top},
	}, func(f scan.Find) { found = append(found, string(f.First)) }, func() {})
	if want := []string{d.top + "/a", d.top + "/z/y"}; err != nil || !slices.Equal(found, want) {
		t.Errorf("found %q, want %q: %+v, %v", found, want, end, err)
	}
}

// TestScanThatHangs: a walker that does not answer is killed when its time is over, and the next
// turn leaves out where it was.
func TestScanThatHangs(t *testing.T) {
	needsRoot(t)
	dir, err := os.MkdirTemp("", "chatd-scan-")
	must(t, err, os.Chmod(dir, 0o755))
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	program := filepath.Join(dir, "walker")
	at := `{"at":{"mount":"L20=","path":"cA=="}}` // /m, p
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho '"+at+"'\nexec sleep 600\n"), 0o755))
	w := Walker{Program: program, UID: spentUID + 100, Grace: time.Second}
	released := make(chan struct{})
	end, err := w.turn(t.Context(), scan.Request{}, func(scan.Find) {}, func() { close(released) })
	if !errors.Is(err, context.DeadlineExceeded) || end.At == nil || string(end.At.Path) != "p" {
		t.Fatalf("%+v, %v", end, err)
	}
	<-released
	var p pass
	p.goOn(nil, end)
	for i, want := range []string{"p beyond", " beyond"} {
		p.goOn(p.At, scan.End{At: &scan.Position{Mount: p.At.Mount, Path: p.At.Path}})
		if got := string(p.At.Path) + " beyond"; !p.At.Beyond || got != want || p.Unseen != i+1 {
			t.Errorf("then it goes on at %q, %v, not seen %d", got, p.At.Beyond, p.Unseen)
		}
	}
	p.goOn(p.At, scan.End{Complete: true})
	if p.At != nil || p.Ended.IsZero() {
		t.Errorf("a pass that is complete goes on at %+v", p.At)
	}
}

// TestPassIsBounded: a host with files of many uids takes no more room than maxLeft of them.
func TestPassIsBounded(t *testing.T) {
	var p pass
	for i := range 3 * maxLeft {
		for j := range 3 * maxNamed {
			name := fmt.Append(nil, "/x", j)
			p.add(scan.Find{UID: uint32(i), Files: 1, First: name, Mount: []byte("/")})
		}
	}
	if len(p.Found) != maxLeft || len(p.Found[0].First) != maxNamed ||
		p.Found[0].Files != 3*maxNamed || p.More == 0 {
		t.Errorf("%d uids, the first with %+v, and %d more", len(p.Found), p.Found[0], p.More)
	}
}

// TestRemoveJournals: of one uid all journals go, and no name that only begins alike.
func TestRemoveJournals(t *testing.T) {
	top := t.TempDir()
	defer func(was []string) { journalDirs = was }(journalDirs)
	journalDirs = []string{top, filepath.Join(top, "none")}
	gone := []string{
		"user-1234.journal", "user-1234@0005f.journal", "user-1234@0005f-00a.journal~",
		"user-1234.journal~",
	}
	stay := []string{
		"user-12345.journal", "user-123.journal", "user-12345@0005f.journal", "user-01234.journal",
		"user-+1234.journal", "system.journal", "user-1234.journal.gz", "user-1234x.journal",
		"xuser-1234.journal", "user-.journal", "user-1234",
		"user-4294968530.journal", // 1234 in 32 bits
	}
	must(t, os.Mkdir(filepath.Join(top, "machine"), 0o755))
	for _, name := range append(slices.Clone(gone), stay...) {
		must(t, os.WriteFile(filepath.Join(top, "machine", name), nil, 0o640))
	}
	must(t, os.WriteFile(filepath.Join(top, "user-1234.journal"), nil, 0o640)) // no directory
	must(t, RemoveJournals(func(uid uint32) bool { return uid == 1234 }))
	for _, name := range gone {
		if exists(filepath.Join(top, "machine", name)) {
			t.Errorf("%s is left", name)
		}
	}
	for _, name := range append(stay, "../user-1234.journal") {
		if !exists(filepath.Join(top, "machine", name)) {
			t.Errorf("%s is gone", name)
		}
	}
}

// TestRemoveSubordinate: the lines of a user go, by name and by number, and the file stays what it
// was otherwise; a file that another tool has locked is left alone.
func TestRemoveSubordinate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	defer func(was []string) { subordinateFiles = was }(subordinateFiles)
	subordinateFiles = []string{file, file + "-none"}
	text := "a:1:2\nchat-1:100000:65536\n7:3:4\nchat-10:5:6\n77:8:9"
	must(t, os.WriteFile(file, []byte(text), 0o640))
	must(t, os.Link(file, file+".lock"))
	done := make(chan error, 1)
	go func() { done <- RemoveSubordinate("chat-1", 7) }()
	select {
	case err := <-done:
		t.Fatalf("it does not wait for the lock: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, os.Remove(file+".lock"), <-done)
	b, err := os.ReadFile(file)
	must(t, err)
	if string(b) != "a:1:2\nchat-10:5:6\n77:8:9" {
		t.Errorf("left are %q", b)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode() != 0o640 || exists(file+".lock") {
		t.Errorf("the file is %v, %v", fi.Mode(), err)
	}
	if all, _ := filepath.Glob(filepath.Dir(file) + "/*"); len(all) != 1 {
		t.Errorf("beside it are %q", all)
	}
}
