//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// skeleton is what a new home of the profile "stuffed" starts with: more than a
// full disk has left.
const skeleton = "/usr/local/share/chatd-e2e"

// onSmallHomes puts a small file system with few inodes over the homes until the
// test ends.
func onSmallHomes(t *testing.T) {
	t.Helper()
	must.Do(t, os.MkdirAll(skeleton, 0o755))
	must.Do(t, os.WriteFile(skeleton+"/stuff", make([]byte, 256<<10), 0o644))
	t.Cleanup(func() { must.Do(t, os.RemoveAll(skeleton+"/stuff")) })
	otherHomes(t, "-t", "tmpfs", "-o", "size=4m,nr_inodes=100", "chatd-e2e")
}

// otherHomes mounts over the homes until the test ends: no chat may be there.
func otherHomes(t *testing.T, mount ...string) {
	t.Helper()
	for _, c := range all(t) {
		t.Fatalf("chat %s is there: its home would be hidden", c.ID)
	}
	output(t, "systemctl", "stop", service)
	output(t, "mount", append(mount, homesDir)...)
	t.Cleanup(func() {
		output(t, "systemctl", "stop", service)
		output(t, "umount", homesDir)
		output(t, "systemctl", "start", service)
	})
	output(t, "chmod", "0711", homesDir)
	output(t, "systemctl", "start", service)
}

// fill makes root take what is left of the homes' file system; the result gives
// it back.
func fill(t *testing.T, how func(dir string) error) (free func()) {
	t.Helper()
	dir := filepath.Join(homesDir, ".fill")
	must.Do(t, os.Mkdir(dir, 0o700))
	err := how(dir)
	must.True(t, errors.Is(err, unix.ENOSPC), "the disk is not full: %v", err)
	return func() { must.Do(t, os.RemoveAll(dir)) }
}

// takeBlocks takes every block that is left: most of them at once (fallocate(2)), for to write
// gigabytes takes an emulated machine minutes, and the last by writing.
func takeBlocks(dir string) error {
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	var size int64
	for step := int64(1 << 30); step >= 4<<10; {
		if unix.Fallocate(int(f.Fd()), 0, size, step) != nil {
			step /= 2
			continue
		}
		size += step
	}
	_, err = f.Seek(size, io.SeekStart)
	for chunk := make([]byte, 4<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	return errors.Join(err, f.Close())
}

// takeInodes makes files until no inode is left.
func takeInodes(dir string) error {
	for i := 0; ; i++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
}

// TestHostFullDisk: without a free block, and without a free inode, a create
// fails and says why, and leaves nothing behind; then it works again.
func TestHostFullDisk(t *testing.T) {
	useProfiles(t)
	onSmallHomes(t)
	spec := chat.Spec{Profile: "stuffed", Awake: new(bool)}
	for _, full := range []struct {
		name string
		take func(string) error
	}{{"blocks", takeBlocks}, {"inodes", takeInodes}} {
		t.Run(full.name, func(t *testing.T) {
			before := places(t)
			free := fill(t, full.take)
			spec.ExternalID = external(t)
			_, err := ask(spec)
			expect.Says(t, err, nil, "no space left on device", "create on a full disk")
			for _, c := range all(t) {
				t.Errorf("chat %s of %s is listed", c.ID, c.ExternalID)
			}
			free()
			expect.Equal(t, places(t), before, "before the create there was\n%sand after it\n", before)
			c := must.Get(ask(spec))(t)
			fi, err := os.Stat(filepath.Join(c.Home, "stuff"))
			expect.True(t, err == nil && fi.Size() == 256<<10, "the home lacks its skeleton: %v", err)
			must.Do(t, reap(c.ID))
		})
	}
}

// places lists what chats have on the host.
func places(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{homesDir, userdb, stateDir + "/tmp", stateDir + "/vartmp"} {
		for _, e := range must.Get(os.ReadDir(dir))(t) {
			fmt.Fprintln(&b, filepath.Join(dir, e.Name()))
		}
	}
	return b.String()
}

// TestHostFullRestart: one chat fills the machine's own disk; chatd restarted comes up, shows,
// sleeps and reaps, and the reap gives the room back.
func TestHostFullRestart(t *testing.T) {
	full, other := create(t, "default"), create(t, "default")
	err := takeBlocks(full.Home)
	must.True(t, errors.Is(err, unix.ENOSPC), "the disk is not full: %v", err)
	output(t, "systemctl", "restart", service)
	c := get(t, other.ID)
	expect.True(t, c.Awake, "after the restart %+v sleeps", c)
	worksOnFullDisk(t, full.ID, other.ID)
}

// worksOnFullDisk wants a chatd that was started on a disk that the chat full has filled to
// show, sleep and reap, and the other chat to wake when there is room.
func worksOnFullDisk(t *testing.T, full, other chat.ID) {
	t.Helper()
	ctx := bounded(timeout)
	h, err := asker.Host(ctx)
	expect.True(t, err == nil && len(h.Missing) == 0, "missing %v: %v", h.Missing, err)
	c, err := asker.Sleep(ctx, other)
	expect.True(t, err == nil && !c.Awake, "%+v, %v", c, err)
	must.Do(t, reap(full))
	eventually(t, timeout, "the other wakes", func() bool { _, err := asker.Wake(ctx, other); return err == nil })
	must.Do(t, reap(other))
}

// TestBeforeFullReboot leaves a chat that has filled the disk, and another.
func TestBeforeFullReboot(t *testing.T) {
	var ids []chat.ID
	for _, name := range fullReboot {
		ids = append(ids, must.Get(ask(chat.Spec{ExternalID: name}))(t).ID)
	}
	output(t, "sync")
	err := takeBlocks(filepath.Join(homesDir, string(ids[0])))
	must.True(t, errors.Is(err, unix.ENOSPC), "the disk is not full: %v", err)
	output(t, "sync")
}

// TestAfterFullReboot: the machine came up with a full disk, and chatd with it.
func TestAfterFullReboot(t *testing.T) {
	var ids []chat.ID
	for _, name := range fullReboot { // to ask again finds it, also where nothing begins
		ids = append(ids, must.Get(ask(chat.Spec{ExternalID: name, Awake: new(bool)}))(t).ID)
	}
	worksOnFullDisk(t, ids[0], ids[1])
}

var fullReboot = []string{"e2e:full reboot:full", "e2e:full reboot:other"}

// privateDirs are the directories that pam_namespace replaces, and where the
// instances lie.
var privateDirs = map[string]string{"/tmp": stateDir + "/tmp", "/var/tmp": stateDir + "/vartmp"}

// TestHostTmp looks from inside two sessions: each has a /tmp and a /var/tmp of
// its own, which is its instance and not the host's.
func TestHostTmp(t *testing.T) {
	a, b := create(t, ""), create(t, "")
	for dir, parent := range privateDirs {
		t.Run(dir, func(t *testing.T) {
			outside := must.Get(os.CreateTemp(dir, "chatd-e2e-outside-"))(t)
			t.Cleanup(func() { _ = os.Remove(outside.Name()) })
			mine := fmt.Sprintf("%s/chatd-e2e-%s", dir, a.ID)
			said(t, a.ID, "echo secret > "+mine+" && cat "+mine)
			got := run(t, b.ID, "cat "+mine)
			expect.True(t, got.Exit != 0, "another chat reads %s", mine)
			if got := run(t, a.ID, "cat "+outside.Name()); got.Exit == 0 {
				t.Errorf("the chat reads the host's %s", outside.Name())
			}
			_, err := os.Lstat(mine)
			expect.True(t, os.IsNotExist(err), "the chat's file is in the host's %s: %v", dir, err)
			instance := filepath.Join(parent, a.User, filepath.Base(mine))
			expect.Equal(t, content(t, instance), "secret", "%s has", instance)
		})
	}
	t.Run("shm", func(t *testing.T) { checkShm(t, a, b) })
}

// checkShm: /dev/shm is a small tmpfs of the session's own.
func checkShm(t *testing.T, a, b chat.Chat) {
	expect.Equal(t, said(t, a.ID, "stat -f -c %T /dev/shm; echo x > /dev/shm/e2e"), "tmpfs", "/dev/shm")
	expect.True(t, run(t, b.ID, "cat /dev/shm/e2e").Exit != 0, "another chat reads /dev/shm")
	_, err := os.Lstat("/dev/shm/e2e")
	expect.True(t, os.IsNotExist(err), "it is the host's: %v", err)
	r := run(t, a.ID, "head -c 40m /dev/zero > /dev/shm/big")
	expect.True(t, r.Exit != 0 && strings.Contains(r.Stderr, "No space left"),
		"40 MiB fit into /dev/shm: %+v", r)
}

// TestHostPAMNamespace: the mounts come from the session's PAM stack, before
// bubblewrap: the namespace that the unit's main process is in has them.
func TestHostPAMNamespace(t *testing.T) {
	c := create(t, "")
	mounts := content(t, "/proc", sessionOf(t, c.ID).pid, "mountinfo")
	for dir, parent := range privateDirs {
		// The fields are: id parent device root mountpoint …
		if want := strings.TrimPrefix(parent, mountOf(t, parent)) + "/" + c.User + " " + dir + " "; !strings.Contains(mounts, want) {
			t.Errorf("no mount of %s/%s on %s in the session's namespace:\n%s", parent, c.User, dir, mounts)
		}
	}
	own := content(t, "/proc/self/mountinfo")
	expect.True(t, !strings.Contains(own, c.User), "the mounts reach the host:\n%s", own)
	expect.True(t, strings.Contains(content(t, "/etc/pam.d/chatd"), "pam_namespace.so"),
		"/etc/pam.d/chatd does not call pam_namespace")
}

// mountOf is the mount point that path is below, empty for the root: mountinfo
// counts a root from there.
func mountOf(t testing.TB, path string) string {
	return strings.TrimSuffix(output(t, "findmnt", "-n", "-o", "TARGET", "--target", path), "/")
}

// TestHostTmpParents: pam_namespace wants the parents root's and mode 000.
// Somebody opens one; the next session has it right again.
func TestHostTmpParents(t *testing.T) {
	for _, parent := range privateDirs {
		checkClosed(t, parent)
		must.Do(t, os.Chmod(parent, 0o755))
	}
	c := create(t, "")
	for dir, parent := range privateDirs {
		checkClosed(t, parent)
		said(t, c.ID, "echo x > "+dir+"/e2e-here")
		content(t, parent, c.User, "e2e-here")
	}
}

func checkClosed(t testing.TB, dir string) {
	t.Helper()
	got := output(t, "stat", "-c", "%a %u %g", dir)
	expect.True(t, got == "0 0 0", "%s is %s (mode, uid, gid), want 0 0 0", dir, got)
}
