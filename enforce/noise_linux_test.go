package enforce

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

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
		must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
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
	if n := quiet.backlog.len(); n > 0 {
		t.Errorf("%d names of B wait after a turn of each", n)
	}
	if n := noisy.backlog.len(); n < many-2*turnSize {
		t.Errorf("%d of A's %d names wait after a turn of each", n, many)
	}
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
	must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
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
	if n := w.sessions[s.order.Chat].backlog.len(); n > 10 {
		t.Errorf("%d names wait", n)
	}
}

// TestAttackBehindNoise: a chat makes many names, and nobody looks at them yet: a file that
// had a denied name meanwhile is opened under no other, and not by a directory that had one.
func TestAttackBehindNoise(t *testing.T) {
	s := idle(t)
	for _, dir := range []string{"d", "e", "secrets"} {
		must.Do(t, os.Mkdir(filepath.Join(s.home, dir), 0o777))
	}
	must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden', '~/gone/**', '~/dir/**']}"))(t)
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
	must.Get(s.hold("access: {useDefaults: false, deny: ['**/hidden']}"))(t)
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
		if recorded := exists(w.backlogFile(s.order.Chat)); recorded != waits {
			t.Fatalf("something waits: %t; a later worker is told: %t", waits, recorded)
		}
	}
	must.Do(t, os.WriteFile(w.backlogFile(s.order.Chat), nil, 0o600))
	expect.True(t, w.openJournal(&watchedSession{session: s.k.named(s.order.Chat)}) != nil,
		"a session goes on of which a worker had not looked at everything")
}
