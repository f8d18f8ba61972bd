//go:build e2e

package vagrant

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// refusedByQuota is what a program says that met EDQUOT.
const refusedByQuota = "Disk quota exceeded"

// TestHostQuota: on the machine's own ext4, whose quotas chatd turned on, a chat has at most its
// bytes and inodes in home, /tmp and /var/tmp together, by whatever call. Others write on. It is
// reported, and a file removed is room again. A limit that is gone is set again within a minute,
// quotas that an operator turned off are turned on and audited, and reap leaves no record of the
// uid.
func TestHostQuota(t *testing.T) {
	useProfiles(t)
	layer := chat.Layer{}
	for _, l := range host(t).Layers {
		if l.Name == chat.LayerDisk {
			layer = l
		}
	}
	if layer.State != chat.LayerOn || !strings.Contains(layer.Probe, "MiB are reserved for root") {
		t.Errorf("%+v", layer)
	}
	c, other := create(t, "narrow"), create(t, "default")
	for _, command := range []string{
		"head -c 9M /dev/zero >f", "head -c 1M /dev/zero >/tmp/g",
		"head -c 1M /dev/zero >/var/tmp/g",
		// fallocate(2) on amd64: the program is not among the profile's commands.
		"perl -e 'open F, \">h\"; syscall(285, fileno(F), 0, 0, 2**26) == 0 or die $!'",
		"perl -e 'open F, \">u\"; unlink \"u\"; syswrite F, 0 x 2**20 for 1..9; die $!'",
	} {
		if r := run(t, c.ID, command); r.Exit == 0 || !strings.Contains(r.Stderr, refusedByQuota) {
			t.Errorf("%s: %+v", command, r)
		}
	}
	d := get(t, c.ID).Disk
	expect.True(t, d != nil && d.Percent == 100 && d.Bytes <= 8<<20 && d.CountedAt == nil,
		"a full chat has %+v", d)
	eventually(t, timeout, "it is reported", func() bool {
		log, err := os.ReadFile(stateDir + "/audit.jsonl")
		return err == nil && strings.Contains(string(log), "(disk_max, inodes_max): 100 %")
	})
	if r := run(t, other.ID, "head -c 9M /dev/zero >f"); r.Exit != 0 {
		t.Errorf("another chat: %+v", r)
	}
	if r := run(t, c.ID, "rm -f f h u /tmp/g /var/tmp/g && head -c 4M /dev/zero >f"); r.Exit != 0 {
		t.Errorf("after rm: %+v", r)
	}
	if r := run(t, c.ID, "touch $(seq 200)"); !strings.Contains(r.Stderr, refusedByQuota) {
		t.Errorf("200 files: %+v", r)
	}
	output(t, "setquota", "-u", fmt.Sprint(c.UID), "0", "0", "0", "0", "/")
	eventually(t, timeout, "the limit is set again", func() bool {
		return strings.Contains(quotaOf(t, c, "/"), " 8192 ")
	})
	before := turnedOn(t)
	output(t, "quotaoff", "-u", "/")
	eventually(t, timeout, "quotas are turned on again, which is audited", func() bool {
		return turnedOn(t) > before
	})
	must.Do(t, reap(c.ID))
	expect.Equal(t, quotaOf(t, c, "/"), "", "after reap the kernel has")
}

// turnedOn is how often chatd has turned on quotas, by its audit log.
func turnedOn(t *testing.T) int {
	t.Helper()
	log := must.Get(os.ReadFile(stateDir + "/audit.jsonl"))(t)
	return strings.Count(string(log), "turned on user quotas in ")
}

// quotaOf is the line of a chat's uid in what repquota(8) lists.
func quotaOf(t *testing.T, c chat.Chat, mount string) string {
	t.Helper()
	for line := range strings.Lines(output(t, "repquota", "-u", "-n", mount)) {
		if strings.HasPrefix(line, fmt.Sprintf("#%d ", c.UID)) {
			return line
		}
	}
	return ""
}

// TestHostQuotaOfHomes: homes on a file system of their own, XFS with usrquota, and then ext4 that
// only counts until chatd turns it on: the home and /tmp have a quota each.
func TestHostQuotaOfHomes(t *testing.T) {
	useProfiles(t)
	for _, c := range all(t) {
		t.Fatalf("chat %s is there: its home would be hidden", c.ID)
	}
	for _, kind := range []struct{ name, mkfs, options string }{
		{"xfs", "mkfs.xfs -q", "loop,usrquota"},
		{"ext4", "mkfs.ext4 -q -O quota -E quotatype=usrquota", "loop"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			shell(t, "truncate -s 512M "+disk+" && "+kind.mkfs+" "+disk)
			output(t, "systemctl", "stop", service)
			output(t, "mount", "-o", kind.options, disk, homesDir)
			t.Cleanup(func() {
				output(t, "systemctl", "stop", service)
				output(t, "umount", homesDir)
				output(t, "systemctl", "start", service)
			})
			output(t, "chmod", "0711", homesDir)
			output(t, "systemctl", "start", service)
			c := create(t, "narrow")
			for _, file := range []string{"f", "/tmp/f"} {
				r := run(t, c.ID, "head -c 9M /dev/zero >"+file)
				expect.True(t, strings.Contains(r.Stderr, refusedByQuota), "%s: %+v", file, r)
			}
			if d := get(t, c.ID).Disk; d == nil || d.Percent != 100 || d.Bytes < 12<<20 {
				t.Errorf("full on both: %+v", d)
			}
			must.Do(t, reap(c.ID))
			expect.Equal(t, quotaOf(t, c, homesDir), "", "after reap the kernel has")
			if kind.name == "xfs" {
				snapshots(t)
			}
		})
	}
}
