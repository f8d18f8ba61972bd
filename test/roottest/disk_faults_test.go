package roottest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// onSmallDisks puts a small file system under the state and another under the homes.
func onSmallDisks(t *testing.T, opt provision.Options) {
	t.Helper()
	needsNamespaces(t, "the state's directory is a mount that PAM knows: test/vagrant fills the machine's own disk")
	for _, dir := range []string{opt.State, opt.Homes} {
		mount(t, "tmpfs", dir, "size=24m,nr_inodes=4000,mode=711")
	}
}

func remount(t *testing.T, opt provision.Options, flags uintptr) {
	t.Helper()
	for _, dir := range []string{opt.State, opt.Homes} {
		must.Do(t, unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "size=24m,nr_inodes=4000,mode=711"))
	}
}

// takeAll leaves no block, or no inode, on the file system of dir.
func takeAll(t *testing.T, dir string, inodes bool) {
	t.Helper()
	var err error
	for i := 0; err == nil && inodes; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint("fill", i)), nil, 0o600)
	}
	for size := 1 << 20; size > 0 && !inodes; size /= 16 { // to the last byte
		for err = nil; err == nil; {
			err = appendTo(filepath.Join(dir, "fill"), make([]byte, size))
		}
	}
	must.True(t, errors.Is(err, unix.ENOSPC), "%s is not full: %v", dir, err)
}

func appendTo(file string, b []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// TestAttackFullRestart: A fills every file system that chatd writes to, and chatd is started
// again. It comes up, shows, sleeps and reaps; that nothing can be tried is not that nothing
// holds; and as soon as A is reaped everything goes on for B.
func TestAttackFullRestart(t *testing.T) {
	for name, inodes := range map[string]bool{"bytes": false, "inodes": true} {
		t.Run(name, func(t *testing.T) {
			opt := options(t)
			onSmallDisks(t, opt)
			m, err := openManager(t.Context(), opt)
			must.Do(t, err)
			a, b := create(t, m, "full a", "default"), create(t, m, "full b", "default")
			tmp, _ := privateTrees(opt, a)
			takeAll(t, a.Home, inodes)
			takeAll(t, tmp, inodes)
			must.Do(t, m.Close())

			m, err = openManager(t.Context(), opt)
			must.True(t, err == nil, "chatd does not start on a full disk: %v", err)
			defer func() { must.Do(t, m.Close()) }()
			ctx := operator(t.Context())
			if got, err := m.Get(ctx, b.ID); err != nil || !got.Awake {
				t.Errorf("B is %+v, %v", got, err)
			}
			h, err := m.Host(ctx)
			expect.True(t, err == nil && len(h.Missing) == 0, "missing %v, %v", h.Missing, err)
			if got, err := m.Sleep(ctx, b.ID); err != nil || got.Awake {
				t.Errorf("sleep: %+v, %v", got, err)
			}
			if _, _, err := m.Create(ctx, chat.Spec{ExternalID: "full c"}); !errors.Is(err, chat.ErrBusy) && !errors.Is(err, unix.ENOSPC) {
				t.Errorf("create on a full disk: %v", err)
			}
			must.Do(t, m.Reap(ctx, a.ID))
			until(t, "B can wake", func() bool { _, err = m.Wake(ctx, b.ID); return err == nil || !errors.Is(err, chat.ErrBusy) })
			must.Do(t, err)
			got := run(t, m, b.ID, "echo on")
			expect.True(t, got.Stdout == "on\n", "%+v", got)
			must.Do(t, m.Reap(ctx, b.ID))
		})
	}
}

// TestReadOnlyRestart: on file systems that went read-only chatd comes up, shows and sleeps, and
// says why it can do no more; mounted read-write again, it goes on.
func TestReadOnlyRestart(t *testing.T) {
	opt := options(t)
	onSmallDisks(t, opt)
	m, err := openManager(t.Context(), opt)
	must.Do(t, err)
	a := create(t, m, "read-only", "default")
	must.Do(t, m.Close())
	remount(t, opt, unix.MS_RDONLY)
	m, err = openManager(t.Context(), opt)
	must.True(t, err == nil, "chatd does not start on a read-only disk: %v", err)
	ctx := operator(t.Context())
	if got, err := m.Get(ctx, a.ID); err != nil || !got.Awake {
		t.Errorf("it is %+v, %v", got, err)
	}
	if got, err := m.Sleep(ctx, a.ID); err != nil || got.Awake {
		t.Errorf("sleep: %+v, %v", got, err)
	}
	h, err := m.Host(ctx)
	if err != nil || len(h.Missing) > 0 || !strings.Contains(strings.Join(h.Findings, "\n"), "read-only") {
		t.Errorf("%+v, %v", h, err)
	}
	_, _, created := m.Create(ctx, chat.Spec{ExternalID: "more"})
	for what, err := range map[string]error{"create": created, "reap": m.Reap(ctx, a.ID)} {
		if !errors.Is(err, chat.ErrBusy) || !strings.Contains(err.Error(), "read-only") && !strings.Contains(err.Error(), "read-write") {
			t.Errorf("%s on a read-only disk: %v", what, err)
		}
	}
	must.Do(t, m.Close())
	remount(t, opt, 0)
	m = must.Get(openManager(t.Context(), opt))(t)
	must.Do(t, errors.Join(m.Reap(ctx, a.ID), m.Close()))
}

// TestFullStateIsSaid: where the file system of the state is full, status, doctor and /healthz say so
// as long as it is.
func TestFullStateIsSaid(t *testing.T) {
	opt := options(t)
	onSmallDisks(t, opt)
	m := open(t, opt)
	serveOver(t, m, opt)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", filepath.Join(opt.Run, "bench.sock"))
		}}}
	says := func(when string, full bool) {
		t.Helper()
		st := must.Get(m.Status(operator(t.Context())))(t)
		h := must.Get(m.Host(operator(t.Context())))(t)
		const why = "the file system of chatd's state directory is full"
		found := strings.Contains(strings.Join(st.Findings, "\n"), why)
		broken := strings.Contains(strings.Join(h.Broken, "\n"), why)
		expect.True(t, st.Ready != full && found == full && broken == full,
			"%s: ready %v, findings %q, broken %q", when, st.Ready, st.Findings, h.Broken)
		a := must.Get(client.Get("http://chatd/healthz"))(t)
		must.Do(t, a.Body.Close())
		if want := map[bool]int{true: 503, false: 200}[full]; a.StatusCode != want {
			t.Errorf("%s: /healthz is %d, want %d", when, a.StatusCode, want)
		}
	}
	says("before", false)
	takeAll(t, opt.State, false)
	says("full", true)
	must.Do(t, os.Remove(filepath.Join(opt.State, "fill")))
	says("after", false)
}

// brokenDisk is a disk whose blocks lie in memory that can be taken away: writes to blocks that it
// never wrote fail then, and ext4 gives up its journal.
type brokenDisk struct {
	cutDisk
	dir string
}

func newBrokenDisk(t *testing.T, at string) brokenDisk {
	t.Helper()
	needsNamespaces(t, "the state's directory is a mount that PAM knows")
	dir := t.TempDir()
	mount(t, "tmpfs", dir, "size=32m")
	d := brokenDisk{newCutDisk(t, at, filepath.Join(dir, "image"), 128<<20), dir}
	d.mount(t)
	t.Cleanup(func() { must.Do(t, unix.Unmount(at, 0)) })
	return d
}

// fail lets the disk take no new block.
func (d brokenDisk) fail(t *testing.T) { takeAll(t, d.dir, false) }

// mend is what an operator does: a disk with room, and fsck(8).
func (d brokenDisk) mend(t *testing.T) {
	must.Do(t, unix.Unmount(d.at, 0), os.Remove(filepath.Join(d.dir, "fill")))
	_ = exec.Command("e2fsck", "-fy", d.image).Run() // it exits 1 when it corrected something
	must.Run(t, exec.Command("e2fsck", "-fn", d.image))
	d.mount(t)
}

// TestBrokenDisk: the disk of the state fails while chats are made. chatd says so, goes on showing
// what there is, and acknowledges nothing that is not there when the disk is mended.
func TestBrokenDisk(t *testing.T) {
	opt := options(t)
	disk := newBrokenDisk(t, opt.State)
	m := must.Get(openManager(t.Context(), opt))(t)
	acknowledged := map[chat.ID]chat.Chat{}
	add := func(external string) error {
		c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Awake: new(false)})
		if err == nil {
			acknowledged[c.ID] = c
		}
		return err
	}
	for i := range 5 {
		must.Do(t, add(fmt.Sprint("before ", i)))
	}
	disk.fail(t)
	var failed error
	for i := 0; i < 2000 && failed == nil; i++ {
		failed = add(fmt.Sprint("while ", i))
	}
	must.True(t, failed != nil, "the disk did not fail")
	t.Logf("after %d creates: %v", len(acknowledged), failed)
	page, err := m.List(operator(t.Context()), chat.Filter{Limit: 1000})
	expect.True(t, err == nil && len(page.Chats) >= min(len(acknowledged), 1000),
		"it shows %d chats of %d, %v", len(page.Chats), len(acknowledged), err)
	expect.True(t, add("one more") != nil, "a create is acknowledged on a broken disk")
	t.Logf("it closes with %v", m.Close())
	disk.mend(t)
	afterBrokenDisk(t, opt, acknowledged)
}

// afterBrokenDisk looks for what was acknowledged.
func afterBrokenDisk(t *testing.T, opt provision.Options, acknowledged map[chat.ID]chat.Chat) {
	t.Helper()
	m := open(t, opt)
	ctx := operator(t.Context())
	for id, was := range acknowledged {
		c, err := m.Get(ctx, id)
		expect.True(t, err == nil && c.UID == was.UID && c.Phase == chat.Ready,
			"%s was acknowledged with uid %d: %+v, %v", was.ExternalID, was.UID, c, err)
	}
	c := create(t, m, "after", "default")
	for _, was := range acknowledged {
		expect.True(t, was.UID != c.UID, "uid %d is given twice", c.UID)
	}
	whole(t, opt, c)
}

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
	skeleton := t.TempDir()
	writeFile(t, filepath.Join(skeleton, "dir/notes"), "as it shall begin", 0o644)
	edit(opt, "default", func(p *chat.Profile) { p.Skeleton = skeleton })
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
	at := filepath.Join(filepath.Dir(opt.State), "disk")
	d := newCutDisk(t, at, at+".image", 64<<20)
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

func newCutDisk(t *testing.T, at, image string, size int64) cutDisk {
	t.Helper()
	must.Do(t, os.MkdirAll(at, 0o711), os.WriteFile(image, nil, 0o600), os.Truncate(image, size))
	must.Run(t, exec.Command("mkfs.ext4", "-q", "-F", image))
	return cutDisk{at, image}
}

// loop gives the image a loop device, which goes when the file system is unmounted. Its nodes
// are the test's own: a bare root may have none.
func (d cutDisk) loop(t *testing.T) (string, *os.File) {
	t.Helper()
	nodes := d.at + ".dev"
	mount(t, "tmpfs", nodes, "size=1m")
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
	_, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&noLogFlush)))
	must.True(t, no == 0, "%v", no)
}
