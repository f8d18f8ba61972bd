//go:build e2e

package vagrant

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

const cutLedger = notes + "/cut.log"

// ledger is a file that has each line on the disk before the next act: what it
// says was acknowledged before the power went.
type ledger struct {
	mu sync.Mutex
	f  *os.File
}

func (l *ledger) write(words ...any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := fmt.Fprintln(l.f, words...); err != nil {
		return fmt.Errorf("cannot write the ledger: %w", err)
	}
	return l.f.Sync()
}

// TestBeforeCut creates, reaps, archives and writes files until the machine dies, or for at most
// ten minutes, which is a failure: nobody cut the power.
func TestBeforeCut(t *testing.T) {
	must.Do(t, os.MkdirAll(notes, 0o700))
	l := &ledger{f: must.Get(os.Create(cutLedger))(t)}
	must.Do(t, l.write("begin"))
	fmt.Println("ready for the cut")
	var wg sync.WaitGroup
	end := time.Now().Add(10 * time.Minute)
	for w := range 6 {
		wg.Go(func() {
			var mine []chat.Chat
			for i := 0; time.Now().Before(end); i++ {
				c, err := createAndRecord(l, w, i)
				if err != nil {
					t.Error(err)
					return
				}
				if mine = append(mine, c); len(mine) <= 2 {
					continue
				}
				end := reapAndRecord
				if w%3 == 0 {
					end = archiveAndRecord
				}
				if err := end(l, mine[0]); err != nil {
					t.Error(err)
					return
				}
				mine = mine[1:]
			}
		})
	}
	for w := 6; w < 8; w++ { // the one asleep, the other awake
		wg.Go(func() { expect.NoError(t, writeAndRecord(l, w, 5*(w-6), end)) })
	}
	wg.Wait()
	t.Error("the power was never cut")
}

// createAndRecord creates a chat; every sixth is awake.
func createAndRecord(l *ledger, worker, i int) (chat.Chat, error) {
	awake := (worker+i)%6 == 5
	if err := l.write("creating", "-", "-", fmt.Sprintf("e2e:cut:%d:%d", worker, i)); err != nil {
		return chat.Chat{}, err
	}
	c, err := ask(chat.Spec{ExternalID: fmt.Sprintf("e2e:cut:%d:%d", worker, i), Awake: &awake})
	if err != nil {
		return c, fmt.Errorf("create: %w", err)
	}
	return c, l.write("created", c.ID, c.UID, c.ExternalID)
}

func reapAndRecord(l *ledger, c chat.Chat) error {
	if err := l.write("reaping", c.ID, c.UID, c.ExternalID); err != nil {
		return err
	}
	if err := reap(c.ID); err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	return l.write("reaped", c.ID, c.UID, c.ExternalID)
}

// archiveAndRecord archives a chat that has a file, of which each archive must have the whole.
func archiveAndRecord(l *ledger, c chat.Chat) error {
	if err := writeFile(c.ID, 1); err != nil {
		return err
	}
	if err := l.write("archiving", c.ID, c.UID, c.ExternalID); err != nil {
		return err
	}
	ctx := bounded(2 * timeout) // four sessions after another, amid creates
	err := whenNotBusy(ctx, func() error {
		_, err := asker.Archive(ctx, c.ID, chat.ToArchive{})
		return err
	})
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	return l.write("archived", c.ID, c.UID, c.ExternalID)
}

// ledgerEntry is what the ledger says of one chat.
type ledgerEntry struct {
	uid, external   string
	reaping, reaped bool
	archived        bool // or it was being archived
}

// readLedger is what the ledger says, by words; a line that the cut tore is left out.
func readLedger(t *testing.T) [][]string {
	t.Helper()
	var lines [][]string
	for line := range strings.Lines(content(t, cutLedger)) {
		if w := strings.Fields(line); len(w) == 4 {
			lines = append(lines, w)
		}
	}
	return lines
}

// inFlight counts what the ledger has begun and not ended, by the word of its beginning.
func inFlight(ledger [][]string) map[string]int {
	n := map[string]int{}
	ends := map[string]string{
		"created": "creating", "reaped": "reaping", "archived": "archiving", "wrote": "writing",
	}
	for _, w := range ledger {
		if begin, ok := ends[w[0]]; ok {
			n[begin]--
		} else {
			n[w[0]]++
		}
	}
	return n
}

// saidOf is what the ledger says of each chat.
func saidOf(ledger [][]string) map[chat.ID]*ledgerEntry {
	said := map[chat.ID]*ledgerEntry{}
	for _, w := range ledger {
		id := chat.ID(w[1])
		switch w[0] {
		case "created":
			said[id] = &ledgerEntry{uid: w[2], external: w[3]}
		case "archiving", "reaping":
			said[id].reaping, said[id].archived = true, w[0] == "archiving"
		case "archived", "reaped":
			said[id].reaped = true
		}
	}
	return said
}

// TestAfterCut: what was acknowledged is true, and nothing is half done.
func TestAfterCut(t *testing.T) {
	ledger := readLedger(t)
	said := saidOf(ledger)
	now := map[chat.ID]chat.Chat{}
	uids := map[uint32]chat.ID{}
	for _, c := range all(t) {
		now[c.ID] = c
		other, ok := uids[c.UID]
		expect.True(t, !ok, "chats %s and %s have the uid %d", c.ID, other, c.UID)
		uids[c.UID] = c.ID
		expect.Equal(t, c.Phase, chat.Ready, "chat %s", c.ID)
	}
	var created, reaped int
	for id, n := range said {
		c, there := now[id]
		switch {
		case n.reaped:
			reaped++
			expect.True(t, !there, "chat %s was reaped, and is there: %+v", id, c)
		case n.reaping:
		case !there:
			t.Errorf("chat %s (%s) was created, and is not there", id, n.external)
		default:
			created++
			if fmt.Sprint(c.UID) != n.uid || c.ExternalID != n.external {
				t.Errorf("chat %s was %+v and is %+v", id, *n, c)
			}
		}
	}
	t.Logf("in flight: %v; acknowledged: %d creates that stayed, %d reaps and archives; "+
		"%d chats are there",
		inFlight(ledger), created, reaped, len(now))
	expect.True(t, created >= 3 && reaped >= 3, "too few: the power was cut before anything happened")
	t.Run("uids", func(t *testing.T) { checkUIDs(t, ledger, now) })
	t.Run("archives", func(t *testing.T) { checkArchives(t, said, now) })
	t.Run("files", func(t *testing.T) { checkWritten(t, ledger, now) })
	t.Run("whole", func(t *testing.T) { checkWhole(t, now) })
	t.Run("wake", func(t *testing.T) { wakeAndReap(t, now) })
}

// checkArchives: a chat that was archived, or was being archived, is there or has an archive, and
// every archive is whole.
func checkArchives(t *testing.T, said map[chat.ID]*ledgerEntry, now map[chat.ID]chat.Chat) {
	ctx := bounded(5 * time.Minute)
	all := must.Get(asker.Archives(ctx, chat.ArchiveFilter{}))(t)
	kept, unpacked := map[chat.ID]bool{}, []chat.Chat{}
	for _, a := range all {
		kept[a.Chat] = true
		expect.NoError(t, expect.Err(asker.VerifyArchive(ctx, a.Name)))
		if _, there := now[a.Chat]; !there && len(unpacked) < 2 {
			c := must.Get(asker.Unarchive(ctx, a.Name))(t)
			unpacked = append(unpacked, c)
			if b, err := os.ReadFile(filepath.Join(c.Home, cutFile)); err != nil || string(b) != cutContent(1) {
				t.Errorf("the archive %s has %d bytes of its file, %v", a.Name, len(b), err)
			}
			must.Do(t, reap(c.ID))
		}
		expect.NoError(t, asker.RemoveArchive(ctx, a.Name))
	}
	for id, n := range said {
		if _, there := now[id]; n.archived && !there && !kept[id] {
			t.Errorf("chat %s (%s) is neither there nor archived", id, n.external)
		}
	}
	leftNothing(t, unpacked)
	left, err := os.ReadDir(archivesDir)
	expect.True(t, err == nil && len(left) == 0, "the directory of archives has %v, %v", left, err)
	t.Logf("%d archives, of which %d were unpacked", len(all), len(unpacked))
}

// checkWhole compares what is on the host with the list, both ways.
func checkWhole(t *testing.T, now map[chat.ID]chat.Chat) {
	known := map[string]bool{}
	for _, c := range now {
		known[string(c.ID)], known[c.User], known[fmt.Sprint(c.UID)] = true, true, true
		out, err := try(timeout, "getent", "passwd", fmt.Sprint(c.UID))
		expect.True(t, err == nil && strings.HasPrefix(out, c.User+":"), "the account of %s: %s %v", c.ID, out, err)
		expect.Equal(t, output(t, "stat", "-c", "%a %u %g", c.Home), fmt.Sprintf("700 %d %d", c.UID, c.UID),
			"%s", c.Home)
	}
	for _, dir := range []string{
		homesDir, snapshotsDir, userdb, stateDir + "/tmp", stateDir + "/vartmp",
	} {
		for _, e := range must.Get(os.ReadDir(dir))(t) {
			name := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".user"), ".group")
			if !known[name] && filepath.Join(dir, name) != snapshotsDir {
				t.Errorf("%s belongs to no chat", filepath.Join(dir, e.Name()))
			}
		}
	}
	checkOwners(t, now)
	expect.NoError(t, healthy())
	checkAudit(t)
}

// wakeAndReap: every chat that is there can be used, and ended.
func wakeAndReap(t *testing.T, now map[chat.ID]chat.Chat) {
	chats := slices.Collect(maps.Values(now))
	each(4, len(chats), func(i int) {
		if testing.Short() && i >= 6 {
			must.Do(t, reap(chats[i].ID))
			return
		}
		r, err := asker.Run(bounded(2*timeout), chats[i].ID, chat.RunSpec{Command: "cd && echo alive"})
		expect.True(t, err == nil && strings.TrimSpace(r.Stdout) == "alive", "chat %s cannot be used: %+v %v", chats[i].ID, r, err)
		expect.NoError(t, reap(chats[i].ID))
	})
	leftNothing(t, chats)
}

// cutFile is what write_file replaces until the power goes.
const cutFile = "cut"

// cutContent is the n-th content: 300 kB in which each line says n.
func cutContent(n int) string { return strings.Repeat(fmt.Sprintf("%09d\n", n), 30_000) }

// writeAndRecord replaces a file of a chat of its own, over and over, and records each write that
// was acknowledged.
func writeAndRecord(l *ledger, worker, i int, end time.Time) error {
	c, err := createAndRecord(l, worker, i)
	if err != nil {
		return err
	}
	for n := 1; time.Now().Before(end); n++ {
		if err := l.write("writing", c.ID, cutFile, n); err != nil {
			return err
		}
		if err := writeFile(c.ID, n); err != nil {
			return err
		}
		if err := l.write("wrote", c.ID, cutFile, n); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces the file of a chat by its n-th content.
func writeFile(id chat.ID, n int) error {
	write := filewire.WriteFile{Path: cutFile, Content: new(cutContent(n))}
	if _, err := asker.WriteFile(bounded(2*timeout), id, write, nil); err != nil {
		return fmt.Errorf("write_file: %w", err)
	}
	return nil
}

// TestHostFileTools: the file tools make their view and work under the service's confinement, of a
// chat that is awake and of one that is asleep.
func TestHostFileTools(t *testing.T) {
	c := create(t, "default")
	for n, how := range []string{"awake", "asleep"} {
		must.Do(t, writeFile(c.ID, n))
		var got strings.Builder
		ctx := bounded(timeout)
		_, err := asker.ReadFile(ctx, c.ID, filewire.ReadFile{Path: cutFile}, func(filewire.Answer) io.Writer { return &got })
		if err != nil || !strings.HasPrefix(cutContent(n), got.String()) || got.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", how, got.Len(), err)
		}
		if _, err = asker.Sleep(ctx, c.ID); n == 0 {
			must.Do(t, err)
		}
	}
}

// checkWritten: each file is the last content that was acknowledged or the next one, whole;
// and the next write leaves nothing of what the cut broke off.
func checkWritten(t *testing.T, ledger [][]string, now map[chat.ID]chat.Chat) {
	last := map[chat.ID]int{}
	for _, w := range ledger {
		if w[0] == "wrote" {
			last[chat.ID(w[1])] = must.Get(strconv.Atoi(w[3]))(t)
		}
	}
	expect.True(t, len(last) >= 2,
		"%d chats wrote files, want 2: the power was cut before anything happened", len(last))
	for id, n := range last {
		home := now[id].Home
		b, err := os.ReadFile(filepath.Join(home, cutFile))
		if err != nil || string(b) != cutContent(n) && string(b) != cutContent(n+1) {
			t.Errorf("chat %s: write %d was acknowledged, and there are %d bytes, %.12q … %.12q, %v", id, n, len(b), b, b[max(0, len(b)-10):], err)
		}
		left, _ := filepath.Glob(filepath.Join(home, ".tmp-*"))
		t.Logf("chat %s: %d writes were acknowledged; the cut left %d temporary files", id, n, len(left))
		_, err = asker.WriteFile(bounded(2*timeout), id, filewire.WriteFile{Path: cutFile, Content: new("after the cut")}, nil)
		if left, _ := filepath.Glob(filepath.Join(home, ".tmp-*")); err != nil || len(left) > 0 {
			t.Errorf("chat %s: after the next write %v is left, %v", id, left, err)
		}
	}
}

// usedUIDs has a line for each uid that a chat had before one of the cuts of this machine.
const usedUIDs = notes + "/cut.uids"

// checkUIDs: no uid was given twice, also before former cuts.
func checkUIDs(t *testing.T, ledger [][]string, now map[chat.ID]chat.Chat) {
	b, err := os.ReadFile(usedUIDs)
	if !errors.Is(err, os.ErrNotExist) {
		must.Do(t, err)
	}
	used := map[string]string{}
	for line := range strings.Lines(string(b)) {
		uid, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		used[uid] = id + " before a former cut"
	}
	former := len(used)
	give := func(uid, id string) {
		if other, ok := used[uid]; ok && other != id {
			t.Errorf("uid %s: chat %s has it, and %s", uid, id, other)
		}
		used[uid] = id
	}
	for _, w := range ledger {
		if w[0] == "created" {
			give(w[2], w[1])
		}
	}
	for id, c := range now {
		give(fmt.Sprint(c.UID), string(id))
	}
	var text strings.Builder
	for uid, id := range used {
		id, _, _ = strings.Cut(id, " ")
		fmt.Fprintln(&text, uid, id)
	}
	must.Do(t, os.WriteFile(usedUIDs, []byte(text.String()), 0o600))
	t.Logf("%d uids, %d of them before former cuts", len(used), former)
}

// checkOwners: no file of the host's file systems belongs to a uid of a chat that is not there.
func checkOwners(t *testing.T, now map[chat.ID]chat.Chat) {
	known := map[string]bool{}
	for _, c := range now {
		known[fmt.Sprint(c.UID)] = true
	}
	seen := map[string]bool{}
	for _, top := range []string{"/", homesDir, "/tmp", "/var/tmp", "/run", "/dev/shm"} {
		found := output(t, "find", top, "-xdev", "-uid", fmt.Sprint("+", uidLow-1), "-uid",
			fmt.Sprint("-", uidHigh+1), "-printf", "%U %p\n")
		for line := range strings.Lines(found) {
			uid, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			seen[uid] = true
			expect.True(t, known[uid], "%s belongs to uid %s, which no chat has", path, uid)
		}
	}
	for uid := range known {
		expect.True(t, seen[uid], "no file belongs to uid %s", uid)
	}
}
