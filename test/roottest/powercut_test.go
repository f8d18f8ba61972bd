package roottest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestPowerCutAfterReap: what a chat was that was reaped does not come back without its record
// when the power goes right after the answer. The cut is ext4's own (EXT4_IOC_SHUTDOWN without
// flushing the log, as xfstests has it).
func TestPowerCutAfterReap(t *testing.T) {
	opt, d := onCutDisk(t)
	m := must.Get(openManager(t.Context(), opt))(t)
	ctx := operator(t.Context())
	stays := asleep(t, m, "stays")
	var reaped []chat.Chat
	for i := range 8 {
		reaped = append(reaped, asleep(t, m, fmt.Sprint("reaped ", i)))
	}
	d.sync(t, unix.Syncfs)
	for _, c := range reaped {
		must.Do(t, m.Reap(ctx, c.ID))
	}
	m = d.cutAndOpen(t, m, opt)
	page := must.Get(m.List(ctx, chat.Filter{}))(t)
	expect.True(t, len(page.Chats) == 1 && page.Chats[0].ID == stays.ID,
		"after the cut there are %+v, want %s", page.Chats, stays.ID)
	whole(t, opt, stays)
	for _, c := range reaped {
		gone(t, opt, c)
	}
	h := must.Get(m.Host(ctx))(t)
	for _, finding := range h.Findings {
		expect.True(t, !strings.Contains(finding, "without a chat"), "a finding: %s", finding)
	}
}

// TestPowerCutAfterCreate: a home that is there after a cut is whole. The names are on the disk
// by then, as the kernel writes them every few seconds, and it writes content later.
func TestPowerCutAfterCreate(t *testing.T) {
	opt, d := onCutDisk(t)
	p := opt.Profiles["default"]
	p.Skeleton = t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(p.Skeleton, "dir"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(p.Skeleton, "dir/notes"), []byte("as it shall begin"), 0o644))
	opt.Profiles["default"] = p
	m := must.Get(openManager(t.Context(), opt))(t)
	c := asleep(t, m, "begins")
	d.sync(t, unix.Fsync) // the directory of homes, and with it all names
	d.cutAndOpen(t, m, opt)
	whole(t, opt, c)
	notes := filepath.Join(c.Home, "dir/notes")
	expect.Equal(t, string(must.Get(os.ReadFile(notes))(t)), "as it shall begin", "the home begins with")
	var st unix.Stat_t
	if err := unix.Stat(notes, &st); err != nil || st.Uid != c.UID || st.Mode&0o777 != 0o644 {
		t.Errorf("%s is of uid %d, mode %o: %v", notes, st.Uid, st.Mode, err)
	}
}

// onCutDisk are options whose state, homes and accounts lie on a disk of their own.
func onCutDisk(t *testing.T) (provision.Options, cutDisk) {
	t.Helper()
	opt := options(t)
	d := newCutDisk(t, filepath.Join(filepath.Dir(opt.State), "disk"))
	d.mount(t)
	opt.State, opt.Homes = filepath.Join(d.at, "state"), filepath.Join(d.at, "homes")
	must.Do(t, os.Mkdir(filepath.Join(d.at, "userdb"), 0o711))
	must.Do(t, os.Mkdir(opt.Homes, 0o711))
	must.Do(t, unix.Mount(filepath.Join(d.at, "userdb"), opt.Userdb, "", unix.MS_BIND, ""))
	return opt, d
}

// cutAndOpen takes the power, gives it back, and starts chatd again.
func (d cutDisk) cutAndOpen(t *testing.T, m *manager, opt provision.Options) *manager {
	t.Helper()
	d.cut(t)
	must.True(t, os.WriteFile(filepath.Join(d.at, "x"), []byte("x"), 0o600) != nil,
		"control: the power is still there")
	_ = m.Close() // it cannot write any more
	must.Do(t, unix.Unmount(opt.Userdb, 0))
	must.Do(t, unix.Unmount(d.at, 0))
	d.mount(t)
	t.Cleanup(func() { must.Do(t, unix.Unmount(d.at, 0)) })
	must.Do(t, unix.Mount(filepath.Join(d.at, "userdb"), opt.Userdb, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must.Do(t, unix.Unmount(opt.Userdb, 0)) })
	return open(t, opt)
}

// cutDisk is an ext4 file system in a file.
type cutDisk struct{ at, image string }

func newCutDisk(t *testing.T, at string) cutDisk {
	t.Helper()
	d := cutDisk{at: at, image: at + ".image"}
	must.Do(t, os.MkdirAll(at, 0o711))
	must.Do(t, os.WriteFile(d.image, nil, 0o600))
	must.Do(t, os.Truncate(d.image, 64<<20))
	must.Run(t, exec.Command("mkfs.ext4", "-q", "-F", d.image))
	return d
}

// loop gives the image a loop device, which goes when the file system is unmounted. Its nodes
// are the test's own: a bare root may have none.
func (d cutDisk) loop(t *testing.T) (string, *os.File) {
	t.Helper()
	nodes := d.at + ".dev"
	must.Do(t, os.MkdirAll(nodes, 0o700))
	must.Do(t, unix.Mount("tmpfs", nodes, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { must.Do(t, unix.Unmount(nodes, unix.MNT_DETACH)) })
	must.Do(t, unix.Mknod(nodes+"/control", unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))))
	control := must.Get(os.OpenFile(nodes+"/control", os.O_RDWR, 0))(t)
	defer control.Close()
	image := must.Get(os.OpenFile(d.image, os.O_RDWR, 0))(t)
	defer image.Close()
	for {
		n := must.Get(unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE))(t)
		name := fmt.Sprint(nodes, "/loop", n)
		must.Do(t, unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n)))))
		f := must.Get(os.OpenFile(name, os.O_RDWR, 0))(t)
		err := unix.IoctlLoopConfigure(int(f.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			return name, f
		}
		must.Do(t, errors.Join(f.Close(), os.Remove(name)))
		if !errors.Is(err, unix.EBUSY) { // another process took it first
			t.Fatal(err)
		}
	}
}

func (d cutDisk) mount(t *testing.T) {
	t.Helper()
	name, f := d.loop(t)
	defer f.Close()
	must.Do(t, unix.Mount(name, d.at, "ext4", unix.MS_NOATIME, ""))
}

// sync makes durable what how does: all, or the directory of homes.
func (d cutDisk) sync(t *testing.T, how func(fd int) error) {
	t.Helper()
	f := must.Get(os.Open(filepath.Join(d.at, "homes")))(t)
	must.Do(t, errors.Join(how(int(f.Fd())), f.Close()))
}

// cut ends all reading and writing at once, and forgets what is in memory.
func (d cutDisk) cut(t *testing.T) {
	f := must.Get(os.Open(d.at))(t)
	defer f.Close()
	noLogFlush := uint32(2)
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, linux/fs/ext4/ext4.h
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&noLogFlush))); no != 0 {
		t.Fatal(no)
	}
}
