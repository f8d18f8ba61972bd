package files

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/chatd/chatd/internal/filewire"

	"golang.org/x/sys/unix"
)

// TestPowerCut takes the power from a file system of its own while files are written in it,
// and mounts it again: each holds the last content that was acknowledged or the one that
// was under way, whole. Without the syncs the same cut does harm, or it would show nothing.
//
// The cut is ext4's own (EXT4_IOC_SHUTDOWN without flushing the log, as xfstests has it): what
// was not written to the device is lost, and the journal is played at the next mount. A
// device that loses or reorders what it has taken is for a machine: test/vagrant, TestAfterCut.
func TestPowerCut(t *testing.T) {
	_, err := exec.LookPath("mkfs.ext4")
	need(t, os.Geteuid() == 0 && err == nil, "root and mkfs.ext4: to make a file system")
	_, err = os.Stat("/sys/block/loop0")
	_, err2 := os.Stat("/dev/loop-control")
	need(t, err == nil || err2 == nil, "loop devices: modprobe loop")
	cmd := child(t, "powercut", "CHATD_FILES_DIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	if t.Logf("%s", out); err != nil || !strings.Contains(string(out), "without syncs") {
		t.Errorf("the cuts did harm: %v", err)
	}
}

// cutRounds is how often the power is cut, cutWriters how many files are written meanwhile.
const cutRounds, cutWriters = 12, 4

func powerCutChild() {
	d := newCutDisk(os.Getenv("CHATD_FILES_DIR"))
	last := make([]int, cutWriters)
	broken := 0
	for range cutRounds {
		d.mount()
		broken += d.check(last)
		d.write(last)
	}
	d.mount()
	broken += d.check(last)
	d.unmount()
	fmt.Printf("%d cuts, acknowledged writes %v, temporary files that were left %d, harm %d\n", cutRounds, last, d.left, broken)
	broken += d.unsynced()
	if broken > 0 {
		os.Exit(1)
	}
}

// cutDisk is an ext4 file system in a file, mounted where only this process sees it.
type cutDisk struct {
	at, node, image string
	left            int
}

func newCutDisk(dir string) *cutDisk {
	d := &cutDisk{at: dir + "/mnt", node: dir + "/dev", image: dir + "/image"}
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	check(errors.Join(os.Mkdir(d.at, 0o700), os.Mkdir(d.node, 0o700)))
	check(errors.Join(os.WriteFile(d.image, nil, 0o600), os.Truncate(d.image, 64<<20)))
	// A /dev of its own: a bare root may have no loop devices, or be mounted without devices.
	check(unix.Mount("tmpfs", d.node, "tmpfs", 0, "size=1m"))
	out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("mkfs.ext4: %v: %s", err, out))
	}
	return d
}

// loop gives the image a loop device, which goes when the file system is unmounted.
func (d *cutDisk) loop() (string, *os.File) {
	control := d.node + "/control"
	_ = unix.Mknod(control, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 237))) // it may be there
	c, err := os.OpenFile(control, os.O_RDWR, 0)
	check(err)
	defer c.Close()
	image, err := os.OpenFile(d.image, os.O_RDWR, 0)
	check(err)
	defer image.Close()
	for {
		n, err := unix.IoctlRetInt(int(c.Fd()), unix.LOOP_CTL_GET_FREE)
		check(err)
		name := d.node + "/loop" + strconv.Itoa(n)
		_ = unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(7, uint32(n))))
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		check(err)
		err = unix.IoctlLoopConfigure(int(f.Fd()), &unix.LoopConfig{Fd: uint32(image.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			return name, f
		}
		f.Close()
		if !errors.Is(err, unix.EBUSY) { // somebody took it first
			check(err)
		}
	}
}

func (d *cutDisk) mount() {
	name, f := d.loop()
	defer f.Close()
	check(unix.Mount(name, d.at, "ext4", unix.MS_NOATIME, ""))
	if err := os.Mkdir(d.home(), 0o700); err == nil { // as durable as a home is by then
		f, err := os.Open(d.at)
		check(err)
		check(errors.Join(unix.Syncfs(int(f.Fd())), f.Close()))
	}
}

func (d *cutDisk) home() string { return d.at + "/home" }

func (d *cutDisk) unmount() { check(unix.Unmount(d.at, 0)) }

// cut ends all reading and writing at once, and forgets what is in memory.
func (d *cutDisk) cut() {
	f, err := os.Open(d.at)
	check(err)
	defer f.Close()
	noLogFlush := uint32(2)
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, linux/fs/ext4/ext4.h
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, f.Fd(), shutdown, uintptr(unsafe.Pointer(&noLogFlush))); no != 0 {
		check(no)
	}
}

// cutText is the n-th content of a file.
func cutText(n int) string { return strings.Repeat(fmt.Sprintf("%07d\n", n), 1000+n%7*4000) }

// write replaces each file over and over, and makes new ones, until the power goes.
func (d *cutDisk) write(last []int) {
	tools, err := Open(filewire.Options{Workspace: d.home()})
	check(err)
	var wg sync.WaitGroup
	for i := range last {
		wg.Go(func() {
			for {
				text := cutText(last[i] + 1)
				if _, err := tools.WriteFile(filewire.WriteFile{Path: fmt.Sprint("dir/", i), Content: &text}, nil); err != nil {
					return
				}
				last[i]++
			}
		})
	}
	time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond)
	d.cut()
	wg.Wait()
	check(tools.Close())
	d.unmount()
}

// check counts the files that are neither the last content that was acknowledged nor the
// one after, and sees that the next write takes away what the cut broke off.
func (d *cutDisk) check(last []int) (broken int) {
	for i, n := range last {
		b, err := os.ReadFile(fmt.Sprintf("%s/dir/%d", d.home(), i))
		none := n == 0 && os.IsNotExist(err)
		if !none && string(b) != cutText(n) && string(b) != cutText(n+1) {
			broken++
			fmt.Printf("file %d: write %d was acknowledged, and there are %d bytes, %.8q, %v\n", i, n, len(b), b, err)
		}
		if string(b) == cutText(n+1) {
			last[i] = n + 1
		}
	}
	left, _ := filepath.Glob(d.home() + "/dir/.tmp-*")
	d.left += len(left)
	tools, err := Open(filewire.Options{Workspace: d.home()})
	check(err)
	text := "x"
	_, err = tools.WriteFile(filewire.WriteFile{Path: "dir/next", Content: &text}, nil)
	check(errors.Join(err, tools.Close()))
	if left, _ := filepath.Glob(d.home() + "/dir/.tmp-*"); len(left) > 0 {
		broken++
		fmt.Printf("after the next write there are %v\n", left)
	}
	return broken
}

// unsynced is the control: the journal has the new name and the disk not the content. With
// the tools' syncs it has both.
func (d *cutDisk) unsynced() (broken int) {
	want := []string{cutText(1), cutText(2)}
	for _, synced := range []bool{true, false} {
		d.mount()
		tools, err := Open(filewire.Options{Workspace: d.home()})
		check(err)
		_, err = tools.WriteFile(filewire.WriteFile{Path: "control", Content: &want[0]}, nil)
		check(err)
		fsync = func(f *os.File) error {
			if synced {
				return f.Sync()
			}
			return nil
		}
		_, err = tools.WriteFile(filewire.WriteFile{Path: "control", Content: &want[1]}, nil)
		check(err)
		fsync = (*os.File).Sync
		other, err := os.Create(d.at + "/other") // has the journal written, and no content of others
		check(err)
		check(errors.Join(other.Sync(), other.Close(), tools.Close()))
		d.cut()
		d.unmount()
		d.mount()
		b, err := os.ReadFile(d.home() + "/control")
		d.unmount()
		whole := err == nil && slices.Contains(want, string(b))
		if whole != synced || synced && string(b) != want[1] {
			broken++
		}
		fmt.Printf("%s syncs: whole is %t, %d bytes, %v\n", map[bool]string{true: "with", false: "without"}[synced], whole, len(b), err)
	}
	return broken
}
