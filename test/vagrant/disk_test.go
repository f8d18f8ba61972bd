//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
)

// spareDisk is a disk of the machine that nobody uses: no file system, no mount,
// its first MiB empty.
func spareDisk(t testing.TB) string {
	t.Helper()
	for _, dev := range strings.Fields(output(t, "lsblk", "-dno", "PATH")) {
		if strings.Contains(output(t, "lsblk", "-no", "MOUNTPOINT", dev), "/") {
			continue
		}
		f, err := os.Open(dev)
		if err != nil {
			continue
		}
		head := make([]byte, 1<<20)
		n, err := f.Read(head)
		must(t, errors.Join(err, f.Close()))
		if n == len(head) && strings.Trim(string(head), "\x00") == "" || strings.HasPrefix(output(t, "lsblk", "-no", "LABEL", dev), "chatd-e2e") {
			return dev
		}
	}
	t.Fatal("no empty disk: the machine should have a second one")
	return ""
}

// onSmallHomes puts a small file system with few inodes over the homes until the
// test ends. It is ext4 as production's is: a tmpfs needs no block for a directory.
func onSmallHomes(t *testing.T) {
	t.Helper()
	for _, c := range all(t) {
		t.Fatalf("chat %s is there: its home would be hidden", c.ID)
	}
	dev := spareDisk(t)
	output(t, "mkfs.ext4", "-q", "-F", "-L", "chatd-e2e", "-m", "0", "-N", "64", dev, "24M")
	output(t, "systemctl", "stop", service)
	output(t, "mount", dev, homesDir)
	t.Cleanup(func() {
		output(t, "systemctl", "stop", service)
		output(t, "umount", homesDir)
		output(t, "wipefs", "-qa", dev)
		output(t, "systemctl", "start", service)
	})
	output(t, "chmod", "--reference="+filepath.Dir(homesDir), homesDir)
	must(t, os.Remove(filepath.Join(homesDir, "lost+found")))
	output(t, "systemctl", "start", service)
}

// fill makes root take what is left of the homes' file system; the result gives
// it back.
func fill(t *testing.T, how func(dir string) error) (free func()) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(homesDir), "homes", ".fill")
	must(t, os.Mkdir(dir, 0o700))
	if err := how(dir); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	return func() { must(t, os.RemoveAll(dir)) }
}

// takeBlocks writes until no block is left.
func takeBlocks(dir string) error {
	f, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	for chunk := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	for err2 := error(nil); err2 == nil; {
		_, err2 = f.Write(make([]byte, 512))
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
	onSmallHomes(t)
	for _, full := range []struct {
		name string
		take func(string) error
	}{{"blocks", takeBlocks}, {"inodes", takeInodes}} {
		t.Run(full.name, func(t *testing.T) {
			before := places(t)
			free := fill(t, full.take)
			name := external(t)
			_, err := ask(chat.Spec{ExternalID: name, Awake: new(bool)})
			if err == nil || !strings.Contains(err.Error(), "no space left on device") {
				t.Errorf("create on a full disk: %v, want an error that says so", err)
			}
			for _, c := range all(t) {
				t.Errorf("chat %s of %s is listed", c.ID, c.ExternalID)
			}
			free()
			if after := places(t); after != before {
				t.Errorf("before the create there was\n%sand after it\n%s", before, after)
			}
			c, err := ask(chat.Spec{ExternalID: name, Awake: new(bool)})
			must(t, err)
			must(t, reap(c.ID))
		})
	}
}

// places lists what chats have on the host.
func places(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{homesDir, userdb, stateDir + "/tmp", stateDir + "/vartmp"} {
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			fmt.Fprintln(&b, filepath.Join(dir, e.Name()))
		}
	}
	return b.String()
}
