package diskquota

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// host is a kernel with a file system for each directory that mount names.
type host struct {
	mount  map[string]uint64           // the device of each directory
	quota  map[uint64]bool             // of each device that counts: does it enforce?
	blocks map[uint64]map[uint32]dqblk // by device and uid
	// forbids: the kernel tells no quota but the caller's own, and lets none be set or turned on.
	forbids bool
	pools   map[string]string // of directories whose pool is not their device
}

func newHost() *host {
	return &host{
		mount: map[string]uint64{"homes": 1, "tmp": 2, "vartmp": 2}, quota: map[uint64]bool{},
		blocks: map[uint64]map[uint32]dqblk{1: {}, 2: {}},
	}
}

func (h *host) disks() *Disks {
	return &Disks{dirs: []string{"homes", "tmp", "vartmp", "not made yet"}, kernel: h}
}

func (h *host) device(dir string) (uint64, error) {
	if dev, ok := h.mount[dir]; ok {
		return dev, nil
	}
	return 0, unix.ENOENT
}

func (h *host) pool(dir string) (string, error) {
	dev, err := h.device(dir)
	return cmp.Or(h.pools[dir], fmt.Sprint(dev)), err
}

func (h *host) enforces(dir string) (bool, error) {
	on, counts := h.quota[h.mount[dir]]
	if !counts {
		return false, errors.ErrUnsupported
	}
	return on, nil
}

func (h *host) enable(dir string) error {
	if h.forbids {
		return unix.EPERM
	}
	h.quota[h.mount[dir]] = true
	return nil
}

func (h *host) get(dir string, uid uint32) (dqblk, error) {
	if h.forbids && uid != 0 {
		return dqblk{}, fmt.Errorf("cannot read: %w", unix.EPERM)
	}
	return h.blocks[h.mount[dir]][uid], nil
}

func (h *host) set(dir string, uid uint32, b dqblk) error {
	if h.forbids {
		return unix.EPERM
	}
	had := h.blocks[h.mount[dir]][uid]
	b.bytes, b.inodes = had.bytes, had.inodes
	h.blocks[h.mount[dir]][uid] = b
	return nil
}

const uid = 4000000011

// TestLimitsOfEachFileSystem: limits stand on each file system that enforces them, once, and on no
// other; Enable makes those enforce that count. Drift sees a limit that is gone or another, Clear
// leaves none.
func TestLimitsOfEachFileSystem(t *testing.T) {
	h := newHost()
	h.quota[1] = false
	d := h.disks()
	if got := fmt.Sprint(d.Unbounded()); got != "[homes tmp vartmp not made yet]" {
		t.Errorf("before Enable: %s enforce nothing", got)
	}
	if on, err := d.Enable(); err != nil || !slices.Equal(on, []string{"homes"}) {
		t.Fatal(on, err)
	}
	if on, err := d.Enable(); err != nil || len(on) > 0 {
		t.Error("enabled a second time:", on, err)
	}
	if _, counts := h.quota[2]; counts || !h.quota[1] {
		t.Errorf("after Enable: %v", h.quota)
	}
	limit := Amount{Bytes: 5<<20 + 1, Inodes: 9}
	must.Do(t, d.Set(uid, limit))
	if b := h.blocks[1][uid]; b.hardKiB != 5<<10+1 || b.hardInodes != 9 || b.softKiB != 0 {
		t.Errorf("the limits are %+v", b)
	}
	if _, there := h.blocks[2][uid]; there {
		t.Error("a file system without quotas got a limit")
	}
	drift := func(want bool) {
		t.Helper()
		if why, err := d.Drift(uid, limit); err != nil || (why != "") != want {
			t.Errorf("drift %q, %v, want %t", why, err, want)
		}
	}
	drift(false)
	h.quota[2] = true // remounted
	drift(true)
	must.Do(t, d.Set(uid, limit))
	drift(false)
	h.blocks[2][uid] = dqblk{hardKiB: 5<<10 + 1, hardInodes: 9, softKiB: 1}
	drift(true)
	err := d.Clear(uid)
	expect.True(t, err == nil && h.blocks[1][uid] == (dqblk{}) && h.blocks[2][uid] == (dqblk{}),
		"after Clear: %v, %v", h.blocks, err)
}

// TestForbiddenQuotas: where the kernel enforces quotas and lets nobody here set one, as in a
// container, nothing is bounded, and a create, a drift and a look at them are no errors.
func TestForbiddenQuotas(t *testing.T) {
	h := newHost()
	h.quota[1], h.quota[2], h.forbids = true, true, true
	d, limit := h.disks(), Amount{Bytes: 1000}
	if got := fmt.Sprint(d.Unbounded()); got != "[homes tmp vartmp not made yet]" {
		t.Errorf("%s are without a bound", got)
	}
	if on, why := d.bounds("homes"); on || !errors.Is(why, fs.ErrPermission) {
		t.Errorf("homes enforces: %t, %v", on, why)
	}
	why, derr := d.Drift(uid, limit)
	_, _, known, herr := d.Used(uid, limit)
	tried, terr := d.Try("try", uid)
	expect.True(t, !known && why == "" && len(tried) == 0,
		"held is known: %t, drift %q, tried %q", known, why, tried)
	expect.NoError(t, errors.Join(d.Set(uid, limit), d.Clear(uid), derr, herr, terr))
}

// TestHeld: what a uid has is the sum over file systems, and the percentage that of the fullest.
func TestHeld(t *testing.T) {
	h := newHost()
	d, limit := h.disks(), Amount{Bytes: 1000 << 10, Inodes: 100}
	if _, _, known, err := d.Used(uid, limit); known || err != nil {
		t.Errorf("without quotas it is known: %v", err)
	}
	h.quota[1], h.quota[2] = true, true
	h.blocks[1][uid] = dqblk{bytes: 900 << 10, inodes: 10}
	h.blocks[2][uid] = dqblk{bytes: 100 << 10, inodes: 95}
	held, used, known, err := d.Used(uid, limit)
	expect.True(t, held == (Amount{1000 << 10, 105}) && used == 95 && known && err == nil,
		"%+v, %d %%, %t, %v", held, used, known, err)
}

func TestPercent(t *testing.T) {
	limit := Amount{Bytes: 2 << 30, Inodes: 200_000}
	for held, want := range map[Amount]int{
		{}: 0, {2 << 30, 0}: 100, {2<<30 - 4096, 0}: 100, {2<<30 - 4<<20, 0}: 99,
		{0, 160_000}: 80, {1 << 30, 400_000}: 200, {1 << 63, 0}: 100_000,
	} {
		if got := held.Percent(limit); got != want {
			t.Errorf("%+v is %d %%, want %d", held, got, want)
		}
	}
	if got := (Amount{1 << 40, 1 << 40}).Percent(Amount{}); got != 0 {
		t.Errorf("without a limit: %d %%", got)
	}
}

// TestRoom: a directory of chatd's on a file system of its own cannot be filled; one that chats
// share is a finding unless blocks are reserved for root there.
func TestRoom(t *testing.T) {
	h := newHost()
	own, shared := t.TempDir(), "/proc" // statfs(2) of /proc reserves nothing
	h.mount[own], h.mount[shared] = 3, 1
	words, findings := h.disks().Room(own, shared, "not made yet")
	expect.True(t, words == "no chat fills the file system of "+own, "%q", words)
	expect.True(t, len(findings) == 1, "findings %q", findings)
	h.pools = map[string]string{shared: "zfs tank", "tmp": "zfs tank"}
	h.mount[shared] = 4
	if _, findings = h.disks().Room(shared); len(findings) != 1 {
		t.Errorf("of a pool that chats share: findings %q", findings)
	}
	st := unix.Statfs_t{Type: unix.EXT4_SUPER_MAGIC, Bfree: 300, Bavail: 44, Bsize: 4096}
	if got := reservedOf(st); got != 1 {
		t.Errorf("ext4 reserves %d MiB", got)
	}
	st.Type = unix.BTRFS_SUPER_MAGIC
	if got := reservedOf(st); got != 0 {
		t.Errorf("btrfs reserves %d MiB", got)
	}
}

// TestTryNeedsAQuota: where no file system enforces limits nothing is tried. With a kernel that
// only claims to, a try fails, and leaves nothing.
func TestTryNeedsAQuota(t *testing.T) {
	must.Root(t, "it changes owners")
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o711))
	h := newHost()
	h.mount = map[string]uint64{dir: 1}
	d := &Disks{dirs: []string{dir}, kernel: h}
	if tried, err := d.Try("try", uid); err != nil || len(tried) > 0 {
		t.Errorf("without quotas %q were tried, %v", tried, err)
	}
	h.quota[1] = true
	if _, err := d.Try("try", uid); err == nil || !strings.Contains(err.Error(), "did not hold") {
		t.Errorf("limits that do not hold: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	expect.True(t, h.blocks[1][uid] == (dqblk{}), "a limit is left: %+v", h.blocks)
}

// TestKernel: this host's kernel answers, and a file system in memory has no quota of users unless
// it is mounted so.
func TestKernel(t *testing.T) {
	d := New(t.TempDir(), filepath.Join(t.TempDir(), "missing"))
	if on, why := d.bounds("/proc"); on || !errors.Is(why, errors.ErrUnsupported) {
		t.Errorf("/proc enforces quotas: %t, %v", on, why)
	}
	if err := d.Set(uid, Amount{1 << 20, 10}); os.Geteuid() == 0 && err != nil {
		t.Error(err)
	}
	if err := d.Clear(uid); os.Geteuid() == 0 && err != nil {
		t.Error(err)
	}
}
