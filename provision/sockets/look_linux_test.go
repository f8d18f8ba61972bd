package sockets

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func ownRoom(t testing.TB) *room {
	t.Helper()
	r := must.Get(open(os.Getpid()))(t)
	t.Cleanup(func() { r.close() })
	return r
}

// The list has the data in a uid's sockets under that uid, and no other's.
func TestProbe(t *testing.T) {
	must.Root(t, "it joins a network")
	const uid = 1879113728
	said, err := Probe(os.Getpid(), uid)
	if err != nil || !strings.HasPrefix(said, "65536 bytes") {
		t.Fatal(said, err)
	}
	found, err := ownRoom(t).look()
	expect.True(t, err == nil && found.ByUID[uid].Sockets == 0,
		"after the probe: %+v, %v", found.ByUID[uid], err)
}

// A socket that was unbound again is in no list, but is counted, and found by the process that
// has it open.
func TestUnlisted(t *testing.T) {
	must.Root(t, "it joins a network")
	r := ownRoom(t)
	before := must.Get(r.look())(t)
	const many = 50
	for range many {
		fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
		t.Cleanup(func() { unix.Close(fd) })
	}
	after, err := r.look()
	if got := after.Unlisted - before.Unlisted; err != nil || got < many/2 { // others in this namespace come and go
		t.Errorf("%d sockets more are unlisted, want %d: %v", got, many, err)
	}
	own := []int{os.Getpid()}
	u := unlistedOf(own, after.Inodes, maxDescriptors)
	expect.True(t, u.Sockets >= many && u.rest == 0 && u.Bytes == uint64(u.Sockets)*socketCost,
		"this process has %+v, want %d empty ones", u, many)
	if u := unlistedOf(own, after.Inodes, 30); u.Sockets+u.rest > 30 {
		t.Errorf("of 30 descriptors %+v", u)
	}
	if max, err := unlistedMax(); err != nil || max < 1<<12 {
		t.Errorf("each may hold %d: %v", max, err)
	}
}

// TestUnlistedHold: a socket that was disconnected holds what came before.
func TestUnlistedHold(t *testing.T) {
	must.Root(t, "it joins a network")
	r := ownRoom(t)
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	lo := &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	must.Do(t, unix.Connect(fd, &unix.SockaddrInet4{Addr: lo.Addr, Port: 9}))
	name := must.Get(unix.Getsockname(fd))(t)
	lo.Port = name.(*unix.SockaddrInet4).Port
	must.Do(t, unix.Connect(fd, lo))
	for range 4 {
		must.Get(unix.Write(fd, make([]byte, 16<<10)))(t)
	}
	var none unix.RawSockaddr // AF_UNSPEC
	if _, _, e := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)),
		unsafe.Sizeof(none)); e != 0 {
		t.Fatal(e)
	}
	found := must.Get(r.look())(t)
	if u := unlistedOf([]int{os.Getpid()}, found.Inodes, maxDescriptors); u.Bytes < 64<<10 {
		t.Errorf("it holds %d bytes, want 64 KiB", u.Bytes)
	}
}

// A connection that was not accepted counts for the uid that listens.
func TestSum(t *testing.T) {
	found := sum([]entry{
		{uid: 7, inode: 11, port: 80, listen: true, counted: true},
		{inode: 0, port: 80, memory: 100, counted: true},
		{inode: 0, port: 81, memory: 10, counted: true},
		{uid: 8, inode: 12, port: 80, memory: 1, counted: true},
		{uid: 9, port: 80}, // TIME_WAIT
	}, 7)
	for uid, want := range map[uint32]uint64{7: 100 + 2*socketCost, 0: 10 + socketCost, 8: 1 + socketCost, 9: 0} {
		expect.Equal(t, found.ByUID[uid].Bytes, want, "uid %d holds", uid)
	}
	expect.True(t, found.All.Sockets == 4 && found.Unlisted == 3 && found.Inodes[12], "%+v", found)
	expect.True(t, sum(nil, -1).Unlisted == 0, "fewer sockets than none are unlisted")
}

// Messages of netlink are read to their end, and none past it.
func TestMessages(t *testing.T) {
	for _, k := range kinds {
		for _, b := range [][]byte{nil, make([]byte, 3), make([]byte, 64), {255, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
			if done, _ := k.messages(b, func(entry) {}); done {
				t.Errorf("%v ended by %v", k, b)
			}
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add(byte(0), make([]byte, 120))
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		k := kinds[int(which)%len(kinds)]
		if len(b) >= k.size {
			k.entry(b)
		}
		_, _ = k.messages(b, func(entry) {})
	})
}

func TestParseCount(t *testing.T) {
	const text = "sockets: used 42\nTCP: inuse 1 orphan 0 tw 9 alloc 2 mem 300\nUDP: inuse 3 mem 7\nFRAG: inuse 0 memory 5\n"
	if c, err := parseCount([]byte(text)); c != (socketCount{42, 307}) || err != nil {
		t.Error(c, err)
	}
	for _, bad := range []string{"", "sockets: used\n", "sockets: used -1\n", "TCP: inuse 1\n", "sockets: used x\n"} {
		if c, err := parseCount([]byte(bad)); err == nil {
			t.Errorf("%q is %+v", bad, c)
		}
	}
}

func TestParseLocks(t *testing.T) {
	const text = "1: POSIX  ADVISORY  WRITE 3568 fd:00:2531452 0 EOF\n" +
		"1: -> POSIX  ADVISORY  WRITE 3569 fd:00:2531452 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 3568 fd:00:2531448 0 EOF\n" +
		"3: OFDLCK ADVISORY  READ -1 fd:00:2531448 0 EOF\n" +
		"4: POSIX  ADVISORY  READ 3568 fd:00:2548663 128 128\n" +
		"5: POSIX  ADVISORY  RE"
	got, err := parseLocks(strings.NewReader(text))
	expect.True(t, err == nil && len(got) == 2 && got[3568] == 2 && got[3569] == 1, "%v, %v", got, err)
}

// TestLocks finds a lock of this process.
func TestLocks(t *testing.T) {
	f := must.Get(os.Create(t.TempDir() + "/lock"))(t)
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 1, Len: 1}
	must.Do(t, unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock))
	got, err := recordLocks()
	expect.True(t, err == nil && got[os.Getpid()] != 0, "%v, %v", got, err)
}
