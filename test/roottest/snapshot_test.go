package roottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// onReflinks puts the homes on a new file system that has reflinks. This kernel may have no quotas
// for it.
func onReflinks(t *testing.T, opt provision.Options) {
	t.Helper()
	needsNamespaces(t, "the homes are the machine's: test/vagrant has its own test")
	for _, need := range []string{"/usr/sbin/mkfs.xfs", "/dev/loop-control"} {
		if _, err := os.Stat(need); err != nil {
			missing(t, need)
		}
	}
	image := filepath.Join(t.TempDir(), "image")
	must.Do(t, os.WriteFile(image, nil, 0o600))
	must.Do(t, os.Truncate(image, 1<<30))
	must.Do(t, os.MkdirAll(opt.Homes, 0o711))
	for _, args := range [][]string{
		{"/usr/sbin/mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, opt.Homes},
	} {
		must.Run(t, exec.Command(args[0], args[1:]...))
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(opt.Homes, unix.MNT_DETACH)) })
}

// openReflinked is a daemon whose homes have reflinks, and that keeps archives.
func openReflinked(t *testing.T) (*manager, provision.Options) {
	t.Helper()
	opt := keepsArchives(t, options(t))
	onReflinks(t, opt)
	return open(t, opt), opt
}

// inOrder writes the program of countInOrder.
const inOrder = `cat >~/count <<'E'
while :; do i=$((i+1)); echo $i >a.new; mv a.new a; echo $i >b.new; mv b.new b; done
E`

// countInOrder starts a program in the chat's terminal that writes two files for ever, the second
// with what the first had before.
func countInOrder(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	run(t, m, c.ID, inOrder)
	must.Do(t, m.Input(operator(t.Context()), c.ID, chat.Input{Text: "bash ~/count", Enter: true}))
	until(t, "it counts", func() bool { return countIn(t, c, "b") > 0 })
}

func countIn(t *testing.T, c chat.Chat, name string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Home, name))
	if !errors.Is(err, os.ErrNotExist) {
		must.Do(t, err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// countsOn fails the test unless the program of countInOrder goes on, which was at least at before.
func countsOn(t *testing.T, c chat.Chat, before int) {
	t.Helper()
	now := countIn(t, c, "b")
	until(t, "its program counts on", func() bool { return countIn(t, c, "b") > now })
	expect.True(t, now >= before, "it counts anew: it is at %d, was at %d", now, before)
}

// noClone fails the test if a clone of the chat's home is left.
func noClone(t *testing.T, opt provision.Options) {
	t.Helper()
	for _, e := range must.Get(os.ReadDir(filepath.Join(opt.Homes, ".snapshots")))(t) {
		t.Errorf("the clone %s is left", e.Name())
	}
}

// TestSnapshot: a kept archive of an awake chat leaves its programs, its runs and its terminal as
// they are, and is of one moment.
func TestSnapshot(t *testing.T) {
	m, opt := openReflinked(t)
	ctx := operator(t.Context())
	c := kept(t, m, "snapshot")
	tell := furnishHome(t, m, c)
	before := run(t, m, c.ID, tell)
	ended := going(func() error {
		r, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "until test -e ~/end; do sleep 0.1; done"})
		if err == nil && r.Exit != 0 {
			err = fmt.Errorf("exit %d", r.Exit)
		}
		return err
	})
	countInOrder(t, m, c)
	at := countIn(t, c, "b")
	a := archiveChat(t, m, c, true)
	expect.True(t, a.Snapshot && a.Kept && a.Slept == "", "the archive is %+v", a)
	countsOn(t, c, at)
	noClone(t, opt)
	run(t, m, c.ID, "touch ~/end")
	expect.Is(t, <-ended, nil, "the run")
	must.Do(t, m.Input(ctx, c.ID, chat.Input{Keys: []string{"C-c"}}))
	must.Do(t, m.Reap(ctx, c.ID))
	forgotten(t, opt, c)
	back := must.Get(m.Unarchive(ctx, a.Name))(t)
	if a, b := countIn(t, back, "a"), countIn(t, back, "b"); a < b || b == 0 || a > b+1 {
		t.Errorf("the first file has %d, the second %d", a, b)
	}
	run(t, m, c.ID, "rm -f ~/a* ~/b* ~/count; touch -d @1 .")
	if after := run(t, m, c.ID, tell); after.Stdout != before.Stdout {
		t.Errorf("its home has\n%s\nit had\n%s%s", after.Stdout, before.Stdout, before.Stderr)
	}
}

// many gives the chat so many files that a clone and an archive take a while.
func many(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	run(t, m, c.ID, `mkdir ~/many && cd ~/many && seq 5000 | xargs touch &&
		head -c 64M /dev/urandom >much`)
}

// snapshotting has a daemon archive a chat that is awake, and stops chatd-archive in that command.
// ended gets the outcome.
func snapshotting(t *testing.T, ctx context.Context, m *manager, c chat.Chat, verb string) (
	archiver int, ended chan outcome,
) {
	t.Helper()
	ended = make(chan outcome, 1)
	go func() {
		a, err := m.Archive(ctx, c.ID, chat.ToArchive{Keep: true, StayAwake: true})
		ended <- outcome{a, err}
	}()
	for {
		for _, pid := range pidsOf(c.UID) {
			if strings.Contains(text(fmt.Sprintf("/proc/%d/cmdline", pid)), "chatd-archive\x00"+verb+"\x00") {
				must.Do(t, unix.Kill(pid, unix.SIGSTOP))
				return pid, ended
			}
		}
		select {
		case o := <-ended:
			t.Fatalf("it ended before: %+v", o)
		default:
		}
	}
}

type outcome struct {
	chat.Archive
	err error
}

// countsNoMore waits until the program of countInOrder stands still.
func countsNoMore(t *testing.T, c chat.Chat) {
	t.Helper()
	until(t, "it stands still", func() bool {
		was := countIn(t, c, "b")
		time.Sleep(200 * time.Millisecond)
		return countIn(t, c, "b") == was
	})
}

// TestAttackSnapshot: while the clone of A's home is packed, A finds no way to it or to what packs
// it, and what A changes is not archived. The clone is A's own: without the view A would reach it.
func TestAttackSnapshot(t *testing.T) {
	m, opt := openReflinked(t)
	c := kept(t, m, "attacks")
	many(t, m, c)
	run(t, m, c.ID, "echo the original >~/secret")
	archiver, ended := snapshotting(t, operator(t.Context()), m, c, "pack")
	run(t, m, c.ID, "echo changed >~/secret; rm ~/kept; echo new >~/new")
	dir := filepath.Join(opt.Homes, ".snapshots", string(c.ID))
	outside := exec.Command("cat", dir+"/secret")
	as := &syscall.Credential{Uid: c.UID, Gid: c.UID}
	outside.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if text, err := outside.Output(); string(text) != "the original\n" {
		t.Fatalf("the clone has %q, %v", text, err)
	}
	var st unix.Stat_t
	must.Do(t, unix.Stat(dir+"/secret", &st))
	got := run(t, m, c.ID, fmt.Sprintf(`exec 2>&1 5<~ 6<..; d=%s
		ls -a $d $d/.. ~/.. ; cat $d/secret /proc/self/fd/5/../.snapshots/%s/secret
		cat /proc/self/fd/6/.snapshots/%[2]s/secret /proc/[0-9]*/root$d/secret
		cat /proc/[0-9]*/root/tmp/secret /proc/[0-9]*/cwd/secret /proc/[0-9]*/fd/* </dev/null
		ln $d/secret ~/linked; ln /tmp/secret ~/linked; mv $d ~/moved; echo x >$d/secret
		find / -inum %d -exec cat {} + 2>/dev/null
		for p in /proc/[0-9]*; do tr '\0' ' ' <$p/cmdline; done
		pkill -9 archive; true`, dir, c.ID, st.Ino))
	for _, bad := range []string{"the original", "chatd-archive", string(c.ID) + "/many"} {
		expect.True(t, !strings.Contains(got.Stdout+got.Stderr, bad),
			"A found %q:\n%s%s", bad, got.Stdout, got.Stderr)
	}
	must.Do(t, unix.Kill(archiver, unix.SIGCONT))
	o := <-ended
	must.Do(t, o.err)
	noClone(t, opt)
	must.Do(t, m.Reap(operator(t.Context()), c.ID))
	must.Get(m.Unarchive(operator(t.Context()), o.Name))(t)
	got = run(t, m, c.ID, "cat ~/secret ~/kept; ls ~/new")
	expect.True(t, got.Stdout == "the original\nkept\n", "archived was %q%s", got.Stdout, got.Stderr)
}

// TestSnapshotEndsWithItsCaller: when the caller leaves while the chat stands still, the chat goes
// on, what came meanwhile arrives, and nothing is left; so too if the clone takes too long.
func TestSnapshotEndsWithItsCaller(t *testing.T) {
	for name, want := range map[string]error{
		"leaves": context.Canceled, "takes too long": chat.ErrBusy,
	} {
		t.Run(name, func(t *testing.T) {
			m, opt := openReflinked(t)
			c := kept(t, m, "waits")
			many(t, m, c)
			countInOrder(t, m, c)
			ctx, cancel := context.WithCancel(operator(t.Context()))
			defer cancel()
			_, ended := snapshotting(t, ctx, m, c, "clone")
			countsNoMore(t, c)
			at := countIn(t, c, "b")
			ran := going(func() error {
				came := chat.RunSpec{Command: "echo came >~/came"}
				return expect.Err(m.Run(operator(t.Context()), c.ID, came))
			})
			if name == "leaves" {
				cancel()
			}
			o := <-ended
			expect.True(t, errors.Is(o.err, want), "%v", o.err)
			must.Do(t, <-ran)
			countsOn(t, c, at)
			noClone(t, opt)
			expect.Equal(t, run(t, m, c.ID, "cat ~/came").Stdout, "came\n", "the run wrote")
			left := archiveFiles(t, opt)
			expect.True(t, len(left) == 0, "of the archive there is %q", left)
		})
	}
}

// TestSnapshotGivesWay: a chat of which a snapshot is packed can be used, put to sleep and reaped;
// its end ends the archive, and nothing is left.
func TestSnapshotGivesWay(t *testing.T) {
	m, opt := openReflinked(t)
	ctx := operator(t.Context())
	c := kept(t, m, "ends")
	many(t, m, c)
	_, ended := snapshotting(t, ctx, m, c, "pack")
	expect.Is(t, expect.Err(m.Archive(ctx, c.ID, chat.ToArchive{Keep: true})), chat.ErrBusy,
		"a second archive at once")
	must.Get(m.Sleep(ctx, c.ID))(t)
	o := <-ended
	expect.True(t, o.err != nil, "the archive was made of a chat that sleeps")
	noClone(t, opt)
	stays(t, m, opt, c)
	_, ended = snapshotting(t, ctx, m, c, "pack")
	must.Do(t, m.Reap(ctx, c.ID))
	o = <-ended
	expect.True(t, o.err != nil, "the archive was made of a chat that is gone")
	noClone(t, opt)
	forgotten(t, opt, c)
}

// TestSnapshotOfHeld: a chat that an operator holds frozen is not archived and kept, and stays so.
func TestSnapshotOfHeld(t *testing.T) {
	m, opt := openReflinked(t)
	ctx := operator(t.Context())
	c := kept(t, m, "held")
	must.Get(m.Freeze(ctx, c.ID))(t)
	expect.Is(t, expect.Err(m.Archive(ctx, c.ID, chat.ToArchive{Keep: true})), chat.ErrBusy, "")
	got, err := m.Get(ctx, c.ID)
	expect.True(t, err == nil && got.Frozen == chat.FrozenUntilThawed, "it is %q, %v", got.Frozen, err)
	noClone(t, opt)
	must.Get(m.Thaw(ctx, c.ID))(t)
}

// TestNoSnapshot: without reflinks, or without room for a clone, the answer says why the chat
// sleeps now, and one that shall stay awake does.
func TestNoSnapshot(t *testing.T) {
	for name, want := range map[string]string{
		"without reflinks": "reflinks", "without room": "space left",
	} {
		t.Run(name, func(t *testing.T) {
			opt := keepsArchives(t, options(t))
			if name == "without room" {
				onReflinks(t, opt)
			}
			m := open(t, opt)
			ctx := operator(t.Context())
			c := kept(t, m, "none")
			if name == "without room" {
				run(t, m, c.ID, "mkdir ~/m && cd ~/m && seq 3000 | xargs touch")
				takeAll(t, opt.Homes, false)
			}
			_, err := m.Archive(ctx, c.ID, chat.ToArchive{Keep: true, StayAwake: true})
			got, gerr := m.Get(ctx, c.ID)
			expect.True(t, errors.Is(err, chat.ErrBusy) && gerr == nil && got.Awake,
				"awake is %t, %v, %v", got.Awake, err, gerr)
			a := archiveChat(t, m, c, true)
			got, err = m.Get(ctx, c.ID)
			expect.True(t, err == nil && !got.Awake, "it is awake: %v", err)
			expect.True(t, !a.Snapshot && strings.Contains(a.Slept, want), "the archive is %+v", a)
			noClone(t, opt)
		})
	}
}

// TestSnapshotKilled: wherever chatd-root is killed in a snapshot, the next one lets the chat go
// on, with its program, removes the clone, and makes the archive.
func TestSnapshotKilled(t *testing.T) {
	opt := keepsArchives(t, options(t))
	onReflinks(t, opt)
	k := &archiveKilling{
		t: t, opt: opt, config: archiveConfig(t, opt), orders: failpoints(filepath.Dir(opt.State)),
	}
	k.daemon = startDaemonOf(t, opt, k.config, string(k.orders))
	for _, point := range []string{
		"snapshot.pause.after", "snapshot.clone.after", "snapshot.pack.before",
	} {
		t.Run(point, func(t *testing.T) { k.inSnapshot(t, point) })
	}
}

func (k *archiveKilling) inSnapshot(t *testing.T, point string) {
	c := k.make(t, point)
	must.Get(k.Run(t.Context(), c.ID, chat.RunSpec{Command: inOrder}))(t)
	must.Do(t, k.Input(t.Context(), c.ID, chat.Input{Text: "bash ~/count", Enter: true}))
	until(t, "it counts", func() bool { return countIn(t, c, "b") > 0 })
	k.orders.order(t, point, 0)
	must.True(t, expect.Err(k.Archive(t.Context(), c.ID, chat.ToArchive{Keep: true})) != nil,
		"the failpoint %s was never reached", point)
	at := countIn(t, c, "b")
	k.again(t)
	countsOn(t, c, at)
	until(t, "its clone is gone", func() bool {
		left := must.Get(os.ReadDir(filepath.Join(k.opt.Homes, ".snapshots")))(t)
		return len(left) == 0
	})
	k.whole(t, c.ID)
	all := k.archivesOf(t, c.ID)
	expect.True(t, len(all) == 0, "archived are %+v", all)
	a, err := k.Archive(t.Context(), c.ID, chat.ToArchive{Keep: true})
	expect.True(t, err == nil && a.Snapshot, "the archive is %+v, %v", a, err)
	k.reap(t, c)
}
