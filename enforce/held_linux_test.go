package enforce

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// longEnough is for what takes milliseconds, on a machine that does much else.
const longEnough = 2 * time.Minute

// TestAttackHeldDirectory: a chat that keeps a directory of its own from being read, for
// which its opens wait, keeps nobody else's open from being answered.
func TestAttackHeldDirectory(t *testing.T) {
	a := newInside(t, false, false)
	b := a.beside(t)
	for _, s := range []*inside{a, b} {
		must.Do(t, os.Mkdir(filepath.Join(s.home, "d"), 0o777))
		must.Do(t, os.WriteFile(filepath.Join(s.home, "d", "f"), nil, 0o666))
		must.Do(t, os.Chmod(filepath.Join(s.home, "d", "f"), 0o666))
		must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	}
	release := holdDirectory(t, filepath.Join(a.home, "d"))
	waits := trying(t, a)
	watched := a.k.named(a.order.Chat).watched
	for until := time.Now().Add(longEnough); ; time.Sleep(time.Millisecond) {
		a.k.watch.asking.Lock()
		n := len(watched.questions)
		a.k.watch.asking.Unlock()
		if n > 0 {
			break
		}
		must.True(t, !time.Now().After(until), "control: A's open asks nobody")
	}
	select {
	case got := <-trying(t, b):
		want := (openResult{true, true, true})
		expect.True(t, got == want, "B: %+v", got)
	case <-time.After(longEnough):
		t.Error("B's open waits for A's directory")
	}
	select {
	case got := <-waits:
		t.Errorf("control: A's open is answered while nobody can read the directory: %+v", got)
	default:
	}
	release()
	expect.Equal(t, <-waits, (openResult{true, true, true}), "A, later")
}

// TestLostQuestion: an open about which a worker was asked that ended before it answered is
// refused by the next one, and those after it are checked.
func TestLostQuestion(t *testing.T) {
	s := idle(t)
	must.Do(t, os.Mkdir(filepath.Join(s.home, "d"), 0o777))
	must.Do(t, os.WriteFile(filepath.Join(s.home, "d", "f"), nil, 0o666))
	must.Do(t, os.Chmod(filepath.Join(s.home, "d", "f"), 0o666))
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	waits := trying(t, s)
	must.Do(t, await(s.k.watch.perm))
	buf := make([]byte, 4<<10)
	n := must.Get(unix.Read(s.k.watch.permFD, buf))(t)
	events := must.Get(parseEvents(buf[:n]))(t)
	for _, e := range events { // as if the program ended here
		unix.Close(e.fd)
	}
	must.Do(t, s.k.resume())
	go func() { _ = s.k.watch.run() }()
	select {
	case got := <-waits:
		want := (openResult{false, true, true})
		expect.True(t, got == want, "%+v, want %+v", got, want)
	case <-time.After(longEnough):
		t.Fatal("an open waits for a worker that has ended")
	}
}

// TestAttackNoise: however many names a chat makes, no open is answered before the names that came
// before it are known; and when there are more than can be held, the session ends that made them.
func TestAttackNoise(t *testing.T) {
	a := idle(t)
	b := a.beside(t)
	const many = 3000
	w := a.k.watch
	w.maxBacklog = many / 3
	for _, s := range []*inside{a, b} {
		must.Do(t, os.Mkdir(filepath.Join(s.home, "d"), 0o777))
		must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	}
	for i := range many { // nobody listens: only who opens takes them in
		must.Do(t, os.WriteFile(filepath.Join(a.home, fmt.Sprint(i)), nil, 0o666))
	}
	hidden, f := filepath.Join(b.home, "d", "hidden"), filepath.Join(b.home, "d", "f")
	must.Do(t, os.WriteFile(hidden, nil, 0o666))
	must.Do(t, os.Chmod(hidden, 0o666))
	must.Do(t, os.Rename(hidden, f))
	go func() { _ = w.readOpens() }()
	if got := <-trying(t, b); got.Read || got.Write {
		t.Errorf("what had a denied name is opened behind %d others: %+v", many, got)
	}
	noisy, quiet := a.k.named(a.order.Chat), a.k.named(b.order.Chat)
	for until := time.Now().Add(longEnough); !noisy.ended(); time.Sleep(time.Millisecond) {
		must.True(t, !time.Now().After(until), "the session that made %d names goes on", many)
	}
	expect.True(t, !quiet.ended(), "the other session was ended, too")
}

// trying has the session open its d/f, and says what came of it.
func trying(t *testing.T, s *inside) <-chan openResult {
	got := make(chan openResult, 1)
	go func() { got <- s.try(t, []string{filepath.Join(s.home, "d", "f")})[0] }()
	return got
}

// holdDirectory has nobody read a directory until release: one reads it into memory that is
// not there yet (userfaultfd(2)), another waits to change it, and who comes later waits for
// that one. A chat gets there by processes and memory that its limits hold up.
func holdDirectory(t *testing.T, dir string) (release func()) {
	t.Helper()
	fault, page := newFault(t)
	fd := must.Get(unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0))(t)
	read, made, tid := make(chan error, 1), make(chan error, 1), make(chan int, 1)
	go func() {
		_, err := unix.Getdents(fd, page)
		read <- err
	}()
	must.Do(t, await(fault)) // it has the directory, and waits for the page
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		tid <- unix.Gettid()
		made <- unix.Mkdirat(fd, "made", 0o755)
	}()
	sleeps := fmt.Sprintf("/proc/self/task/%d/stat", <-tid)
	for until := time.Now().Add(longEnough); ; time.Sleep(time.Millisecond) {
		b := must.Get(os.ReadFile(sleeps))(t)
		if strings.Contains(string(b), ") D ") {
			break
		}
		must.True(t, !time.Now().After(until), "control: nobody waits for the directory: %s", b)
	}
	release = sync.OnceFunc(func() {
		must.Do(t, fault.Close()) // the page is there now
		must.Do(t, <-read)
		must.Do(t, <-made)
		must.Do(t, unix.Close(fd))
	})
	t.Cleanup(release)
	return release
}

// newFault is a page that is not there until the file is closed.
func newFault(t *testing.T) (*os.File, []byte) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		skip(t, "userfaultfd: "+errno.Error())
	}
	page := must.Get(unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { must.Do(t, unix.Munmap(page)) })
	const hello, register, missing = 0xc018aa3f, 0xc020aa00, 1 // linux/userfaultfd.h
	api := [3]uint64{0xaa}
	area := [4]uint64{uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(len(page)), missing}
	_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, hello, uintptr(unsafe.Pointer(&api)))
	if errno == 0 {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, register, uintptr(unsafe.Pointer(&area)))
	}
	must.True(t, errno == 0, "userfaultfd: %v", errno)
	return os.NewFile(fd, "userfaultfd"), page
}

// TestAskedWhileReleased: a session is let go of and taken again while others ask about
// it, bring it to other rules and look at it again. Nobody waits for ever, nothing is
// ended by mistake, and what is kept at the end is kept.
func TestAskedWhileReleased(t *testing.T) {
	s := newInside(t, false, false)
	file := filepath.Join(s.home, ".env")
	must.Do(t, os.WriteFile(file, nil, 0o666))
	must.Do(t, os.Chmod(file, 0o666))
	stop := make(chan bool)
	var all sync.WaitGroup
	again := func(do func()) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					do()
				}
			}
		})
	}
	again(func() {
		if _, err := s.k.execute(orders.Order{Verb: orders.Probe, Chat: s.order.Chat, PID: s.order.PID, Start: s.order.Start}); err != nil && !errors.Is(err, chat.ErrNotFound) {
			t.Error(err)
		}
	})
	for _, rules := range []string{"access: {deny: [.env]}", "access: {deny: [.env, '**/secrets/**']}"} {
		again(func() {
			if _, err := s.applyRules(rules); err != nil && !errors.Is(err, chat.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	again(s.k.sweep)
	again(func() { s.k.queueRecheck(s.order.Chat); time.Sleep(time.Millisecond) })
	again(func() {
		if k := s.k.named(s.order.Chat); k != nil && k.ended() && !isClosed(k) {
			t.Error("a session that is kept is said to have ended")
		}
	})
	for range 30 {
		time.Sleep(10 * time.Millisecond)
		_, _ = s.k.execute(orders.Order{Verb: orders.Drop, Chat: s.order.Chat})
	}
	close(stop)
	all.Wait()
	must.Get(s.applyRules("access: {deny: [.env]}"))(t)
	if got := s.try(t, []string{file}); got[0] != (openResult{}) {
		t.Errorf("after all that: %+v", got[0])
	}
}

func isClosed(k *session) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.closed
}

// TestRelease: what still has a session in hand when it is let go of harms nobody, also
// not who has got the numbers of its descriptors.
func TestRelease(t *testing.T) {
	s := newInside(t, false, false)
	must.Get(s.applyRules("access: {deny: [.env]}"))(t)
	old := s.k.named(s.order.Chat)
	s.k.drop(s.order.Chat)
	other := exec.Command("sleep", "60")
	must.Do(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	for range 8 { // also those that old had
		fd := must.Get(unix.PidfdOpen(other.Process.Pid, 0))(t)
		defer unix.Close(fd)
	}
	expect.True(t, old.ended(), "a session that was let go of goes on")
	s.k.end(old, errors.New("a test"))
	must.Do(t, old.kill())
	expect.Is(t, s.k.apply(old, nil), chat.ErrNotFound,
		"rules are raised in a session that was let go of")
	old.close()
	s.k.forget(old)
	s.try(t, nil) // neither it nor another was ended
	expect.NoError(t, other.Process.Signal(unix.Signal(0)))
	left, _ := filepath.Glob(filepath.Join(s.k.dir, "sessions", "*"))
	expect.True(t, len(left) == 0, "left: %q", left)
}

// TestBeyondBounds: rules that cannot be kept in bounds are not kept half, but refused, and those
// before them stay.
func TestBeyondBounds(t *testing.T) {
	s := newInside(t, false, false)
	env := filepath.Join(s.home, "0.env")
	must.Do(t, os.WriteFile(env, nil, 0o644))
	_, err := s.applyRules("access: {deny: ['*.env']}")
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Join(s.home, strings.Repeat("d/", 1001)), 0o755))
	_, err = s.applyRules("access: {deny: [more]}")
	expect.True(t, err != nil && strings.Contains(err.Error(), "deeper than 1000"),
		"beyond the bound: %v", err)
	got := s.try(t, []string{env})
	expect.True(t, !got[0].Read, "after rules that could not be kept the old ones are gone")
}
