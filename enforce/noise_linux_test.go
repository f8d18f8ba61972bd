package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestTurns: the backlogs of several sessions are looked at in turn, a part at a time, so that a
// session with a long one holds up itself alone.
func TestTurns(t *testing.T) {
	a := idle(t)
	b := a.beside(t)
	w := a.k.watch
	for _, s := range []*inside{a, b} {
		must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	}
	const many = 10 * turnSize
	for i := range many {
		must.Do(t, os.WriteFile(filepath.Join(a.home, fmt.Sprint(i)), nil, 0o666))
	}
	makeFree(t, filepath.Join(b.home, "hidden"))
	w.mu.Lock()
	must.Do(t, w.readNames())
	noisy, quiet := w.sessions[a.order.Chat], w.sessions[b.order.Chat]
	w.mu.Unlock()
	if noisy.backlog.len() < many || quiet.backlog.len() == 0 {
		t.Fatalf("control: %d and %d names wait", noisy.backlog.len(), quiet.backlog.len())
	}
	for range 2 {
		pause := must.Get(w.turn())(t)
		expect.True(t, pause >= 0, "nobody waits any more")
	}
	n := quiet.backlog.len()
	expect.True(t, n <= 0, "%d names of B wait after a turn of each", n)
	n = noisy.backlog.len()
	expect.True(t, n >= many-2*turnSize, "%d of A's %d names wait after a turn of each", n, many)
	// One that has used its share is passed over, and says when its turn is.
	noisy.names.spend(time.Now(), time.Hour)
	before := noisy.backlog.len()
	if pause, err := w.turn(); err != nil || pause < time.Minute || noisy.backlog.len() != before {
		t.Errorf("its share is used: a pause of %v, %d of %d names wait: %v", pause, noisy.backlog.len(), before, err)
	}
	w.maxBacklog = before // half of what can be held is there: it has to go on
	if pause, err := w.turn(); err != nil || pause != 0 || noisy.backlog.len() == before {
		t.Errorf("more would be too much: a pause of %v, %d of %d names wait: %v", pause, noisy.backlog.len(), before, err)
	}
}

// TestSameNamesWaitOnce: who renames in a loop leaves no more behind than one who does it once.
func TestSameNamesWaitOnce(t *testing.T) {
	s := idle(t)
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	makeFree(t, filepath.Join(s.home, "a"))
	must.Do(t, os.Mkdir(filepath.Join(s.home, "d"), 0o755))
	for range 500 {
		for _, name := range []string{"a", "d"} {
			p := filepath.Join(s.home, name)
			must.Do(t, errors.Join(os.Rename(p, p+"x"), os.Rename(p+"x", p)))
		}
	}
	w := s.k.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	must.Do(t, w.readNames())
	n := w.sessions[s.order.Chat].backlog.len()
	expect.True(t, n <= 10, "%d names wait", n)
}

// TestAttackBehindNoise: a chat makes many names, and nobody looks at them yet: a file that
// had a denied name meanwhile is opened under no other, and not by a directory that had one.
func TestAttackBehindNoise(t *testing.T) {
	s := idle(t)
	for _, dir := range []string{"d", "e", "secrets"} {
		must.Do(t, os.Mkdir(filepath.Join(s.home, dir), 0o777))
	}
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden', '~/gone/**', '~/dir/**']}"))(t)
	at := func(name string) string { return filepath.Join(s.home, name) }
	noise := func() {
		for i := range 5 * turnSize {
			must.Do(t, errors.Join(os.WriteFile(at("n"), nil, 0o666), os.Rename(at("n"), at(fmt.Sprint("n", i)))))
		}
	}
	noise()
	makeFree(t, at("hidden"))
	must.Do(t, os.Rename(at("hidden"), at("d/f")))
	noise()
	makeFree(t, at("gone/f")) // its directory is gone when it is looked at
	must.Do(t, errors.Join(os.Rename(at("gone/f"), at("e/f")), os.Remove(at("gone"))))
	makeFree(t, at("dir/f"))
	must.Do(t, errors.Join(os.Rename(at("dir"), at("was")), os.Rename(at("was/f"), at("g"))))
	makeFree(t, at("free"))
	noise()
	go func() { _ = s.k.watch.readOpens() }()
	for i, got := range s.try(t, []string{at("d/f"), at("e/f"), at("g"), at("free")}) {
		expect.True(t, got.Read == (i == 3), "file %d: %+v", i, got)
	}
}

// TestWorkerEndsBehind: a worker that takes up a session, of which something waited to be
// looked at when the one before ended, does not go on with less than that one knew.
func TestWorkerEndsBehind(t *testing.T) {
	s := idle(t)
	must.Get(s.applyRules("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
	for i := range 3 * turnSize {
		must.Do(t, os.WriteFile(filepath.Join(s.home, fmt.Sprint(i)), nil, 0o666))
	}
	w := s.k.watch
	w.mu.Lock()
	must.Do(t, w.readNames())
	w.mu.Unlock()
	for waits := true; waits; {
		must.Get(w.turn())(t)
		waits = w.sessions[s.order.Chat].backlog.len() > 0
		recorded := exists(w.backlogFile(s.order.Chat))
		must.True(t, recorded == waits, "something waits: %t; a later worker is told: %t", waits, recorded)
	}
	must.Do(t, os.WriteFile(w.backlogFile(s.order.Chat), nil, 0o600))
	expect.True(t, w.openJournal(&watchedSession{session: s.k.named(s.order.Chat)}) != nil,
		"a session goes on of which a worker had not looked at everything")
}

// TestRefusals: what is counted is bounded, fits on the wire however long the names are, is
// handed out once, and no chat takes another's place.
func TestRefusals(t *testing.T) {
	r := refusals{chats: map[chat.ID]*orders.Refusals{}}
	asked := 0
	long := func(i int) string { return strings.Repeat("\xff", 5000) + fmt.Sprint(i) }
	want := map[chat.ID]uint64{}
	for i := range 50 {
		id := chat.ID(fmt.Sprintf("%016x", i))
		for n := range 3 * maxRefused {
			for range 2 {
				r.add(id, fmt.Sprint(n)+long(n), func() string { asked++; return long(n) })
				want[id]++
			}
		}
	}
	expect.True(t, asked == 50*maxRefused,
		"a name was looked for %d times, want once for each file that is held: %d", asked, 50*maxRefused)
	for more := true; more; {
		a := r.take()
		b, err := json.Marshal(a)
		must.True(t, err == nil && len(b) <= orders.MaxAnswer,
			"an answer of %d bytes, %v: want at most %d", len(b), err, orders.MaxAnswer)
		for _, c := range a.Refused {
			expect.True(t, len(c.Files) == maxRefused, "%d files of chat %s", len(c.Files), c.Chat)
			for _, f := range c.Files {
				want[c.Chat] -= f.Times
			}
			want[c.Chat] -= c.More
		}
		more = a.MoreRefused
	}
	for id, left := range want {
		expect.True(t, left == 0, "%d opens of chat %s are not accounted for", left, id)
	}
	a := r.take()
	expect.True(t, len(a.Refused) == 0, "handed out twice: %d chats", len(a.Refused))
}

const (
	fileID  = unix.FAN_EVENT_INFO_TYPE_FID
	oldName = unix.FAN_EVENT_INFO_TYPE_OLD_DFID_NAME
	newName = unix.FAN_EVENT_INFO_TYPE_NEW_DFID_NAME
)

// event is one event as fanotify(7) writes it.
func event(mask byte, records ...[]byte) []byte {
	b := make([]byte, unix.FAN_EVENT_METADATA_LEN)
	for _, r := range records {
		b = append(b, r...)
	}
	b[0], b[4], b[6], b[11] = byte(len(b)), unix.FANOTIFY_METADATA_VERSION, unix.FAN_EVENT_METADATA_LEN, mask
	return b
}

func record(kind byte, name string) []byte {
	b := make([]byte, 20)
	b[0], b[12], b[16] = kind, 4, 1
	b = append(append(b, "hand"...), name...)
	b = append(b, 0)
	b[2] = byte(len(b))
	return b
}

func TestParseEvents(t *testing.T) {
	b := append(event(0, record(oldName, "old"), record(newName, "new"), record(fileID, "")), event(0, record(9, "x"))...)
	got, err := parseEvents(b)
	if err != nil || len(got) != 2 || got[0].old.name != "old" || got[0].dir.name != "new" || got[0].child == "" || got[0].child != got[0].dir.dir || got[1].child != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for cut := 1; cut < len(b); cut++ {
		if events, err := parseEvents(b[:cut]); err == nil && len(events) != 1 {
			t.Errorf("%d bytes are read as %d events", cut, len(events))
		}
	}
}

func FuzzParseEvents(f *testing.F) {
	whole := event(0, record(newName, "new"), record(oldName, "old"), record(fileID, ""))
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(slices.Concat(whole, []byte{0}))
	f.Add(event(0, []byte{fileID, 0, 8, 0, 1, 2, 3, 4})) // a record without a handle
	// The version, a record's kind and size, and the size of its handle.
	for _, at := range []int{4, 24, 26, 36} {
		bad := slices.Clone(whole)
		bad[at] = 99
		f.Add(bad)
	}
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseEvents(b) })
}
