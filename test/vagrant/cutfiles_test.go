//go:build e2e

package vagrant

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	ctx, cancel := bounded(2 * timeout)
	defer cancel()
	text := cutContent(n)
	write := filewire.WriteFile{Path: cutFile, Content: &text}
	if _, err := asker.WriteFile(ctx, id, write, nil); err != nil {
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
		ctx, cancel := bounded(timeout)
		_, err := asker.ReadFile(ctx, c.ID, filewire.ReadFile{Path: cutFile}, func(filewire.Answer) io.Writer { return &got })
		if err != nil || !strings.HasPrefix(cutContent(n), got.String()) || got.Len() == 0 {
			t.Errorf("%s: %d bytes, %v", how, got.Len(), err)
		}
		_, err = asker.Sleep(ctx, c.ID)
		cancel()
		if n == 0 {
			must.Do(t, err)
		}
	}
}

// recordedWrites is the last write of each chat that was acknowledged.
func recordedWrites(t *testing.T) map[chat.ID]int {
	t.Helper()
	f := must.Get(os.Open(cutLedger))(t)
	defer f.Close()
	last := map[chat.ID]int{}
	for in := bufio.NewScanner(f); in.Scan(); {
		w := strings.Fields(in.Text())
		if len(w) != 4 || w[0] != "wrote" {
			continue
		}
		n := must.Get(strconv.Atoi(w[3]))(t)
		last[chat.ID(w[1])] = n
	}
	return last
}

// checkWritten: each file is the last content that was acknowledged or the next one, whole;
// and the next write leaves nothing of what the cut broke off.
func checkWritten(t *testing.T, now map[chat.ID]chat.Chat) {
	last := recordedWrites(t)
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
		ctx, cancel := bounded(2 * timeout)
		text := "after the cut"
		_, err = asker.WriteFile(ctx, id, filewire.WriteFile{Path: cutFile, Content: &text}, nil)
		cancel()
		if left, _ := filepath.Glob(filepath.Join(home, ".tmp-*")); err != nil || len(left) > 0 {
			t.Errorf("chat %s: after the next write %v is left, %v", id, left, err)
		}
	}
}

// usedUIDs has a line for each uid that a chat had before one of the cuts of this machine.
const usedUIDs = notes + "/cut.uids"

// checkUIDs: no uid was given twice, also before former cuts.
func checkUIDs(t *testing.T, now map[chat.ID]chat.Chat) {
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
	ledger := must.Get(os.ReadFile(cutLedger))(t)
	for line := range strings.Lines(string(ledger)) {
		if w := strings.Fields(line); len(w) == 4 && w[0] == "created" {
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
