package enforce

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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
		must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	}
	release := holdDirectory(t, filepath.Join(a.home, "d"))
	waits := trying(t, a)
	watched := a.k.watch.session(a.order.Chat)
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
		if want := (openResult{true, true, true}); got != want {
			t.Errorf("B: %+v", got)
		}
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
	must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
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
		if want := (openResult{false, true, true}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
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
		must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
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
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	must.Do(t, err)
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
