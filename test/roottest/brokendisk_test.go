package roottest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// brokenDisk is a disk whose blocks lie in memory that can be taken away: writes to blocks that it
// never wrote fail then, and ext4 gives up its journal.
type brokenDisk struct {
	t              *testing.T
	dir, image, at string
}

func newBrokenDisk(t *testing.T, at string) *brokenDisk {
	t.Helper()
	if onHost() {
		t.Skip("the state's directory is a mount that PAM knows")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing(t, "loop devices")
	}
	d := &brokenDisk{t: t, dir: t.TempDir(), at: at}
	must.Do(t, unix.Mount("tmpfs", d.dir, "tmpfs", 0, "size=32m"))
	t.Cleanup(func() { must.Do(t, unix.Unmount(d.dir, unix.MNT_DETACH)) })
	d.image = filepath.Join(d.dir, "image")
	must.Do(t, os.WriteFile(d.image, nil, 0o600))
	must.Do(t, os.Truncate(d.image, 128<<20))
	d.command("mkfs.ext4", "-q", "-F", d.image)
	must.Do(t, os.MkdirAll(at, 0o711))
	d.mount()
	t.Cleanup(d.unmount)
	return d
}

func (d *brokenDisk) command(args ...string) {
	d.t.Helper()
	must.Run(d.t, exec.Command(args[0], args[1:]...))
}

func (d *brokenDisk) mount() { d.command("mount", "-o", "loop", d.image, d.at) }

func (d *brokenDisk) unmount() { d.command("umount", d.at) }

// fail lets the disk take no new block.
func (d *brokenDisk) fail() { takeAll(d.t, d.dir, false) }

// mend is what an operator does: a disk with room, and fsck(8).
func (d *brokenDisk) mend() {
	d.unmount()
	must.Do(d.t, os.Remove(filepath.Join(d.dir, "fill")))
	_ = exec.Command("e2fsck", "-fy", d.image).Run() // it exits 1 when it corrected something
	d.command("e2fsck", "-fn", d.image)
	d.mount()
}

// TestBrokenDisk: the disk of the state fails while chats are made. chatd says so, goes on showing
// what there is, and acknowledges nothing that is not there when the disk is mended.
func TestBrokenDisk(t *testing.T) {
	opt := options(t)
	disk := newBrokenDisk(t, opt.State)
	m := must.Get(openManager(t.Context(), opt))(t)
	acknowledged := map[chat.ID]chat.Chat{}
	add := func(external string) error {
		no := false
		c, _, err := m.Create(operator(t.Context()), chat.Spec{ExternalID: external, Awake: &no})
		if err == nil {
			acknowledged[c.ID] = c
		}
		return err
	}
	for i := range 5 {
		must.Do(t, add(fmt.Sprint("before ", i)))
	}
	disk.fail()
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
	disk.mend()
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
