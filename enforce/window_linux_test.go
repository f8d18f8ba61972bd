package enforce

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chatd/chatd/enforce/pathclass"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// keys are denied by every one of these rules, each time by other mounts.
var keys = []string{"x/key", "x/pub/key", "x/pub/d/key"}

var keyRules = []string{
	"", "{deny: ~/x/**}", "{allow: ~/x/pub/**}, {deny: ~/x/**}", "{deny: ~/x/**, ops: [write]}", "{allow: ~/x/pub}, {deny: ~/x, ops: [write]}",
	"{allow: ~/x/pub/d}, {deny: ~/x/pub}", "{deny: ~/x/pub}", "{allow: ~/x/pub/d}, {deny: ~/x/pub}, {deny: ~/x, ops: [write]}",
	"{allow: ~/x/pub/d/free}, {deny: ~/x/pub/d}", "{deny: ~/x/pub, ops: [write]}",
}

func rulesOfKeys(i int) string {
	return "access: {useDefaults: false, mode: first-match, rules: [{deny: '**/key'}, " + keyRules[i] + "]}"
}

// makeFree makes a file for everybody.
func makeFree(t testing.TB, file string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte("free"), 0o666))
	must.Do(t, os.Chmod(file, 0o666))
}

// TestNoWindow: while rules are replaced by others that deny the same files, and while
// exceptions come and go, nobody gets at those files for a moment. Nor do they where the
// kernel cannot put one mount in another's place.
func TestNoWindow(t *testing.T) {
	for name, noSwap := range map[string]bool{"swapped": false, "on top": true} {
		t.Run(name, func(t *testing.T) {
			s := newInside(t, false, false)
			s.k.watch.noNames = true
			s.k.noSwap = noSwap
			var tries []string
			for _, key := range keys {
				makeFree(t, filepath.Join(s.home, key))
				tries = append(tries, filepath.Join(s.home, key))
			}
			makeFree(t, filepath.Join(s.home, "x/pub/d/free"))
			r := rand.New(rand.NewPCG(3, 5))
			must.Get(s.applyRules(rulesOfKeys(0)))(t)
			var now atomic.Value // which rules are replaced
			now.Store("")
			stop, done := make(chan bool), make(chan int)
			go func() {
				n, many := 0, slices.Repeat(tries, 200)
				defer func() { done <- n }()
				for {
					for i, got := range s.try(t, many) {
						if n++; got != (openResult{}) {
							t.Errorf("%s: %+v between rules %s", many[i], got, now.Load())
							return
						}
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			last := 0
			rounds := 200
			if testing.Short() {
				rounds = 60
			}
			for n := range rounds {
				next := r.IntN(len(keyRules))
				now.Store(fmt.Sprintf("%d: %q and %q", n, keyRules[last], keyRules[next]))
				last = next
				expect.NoError(t, expect.Err(s.applyRules(rulesOfKeys(next))))
				if n%10 == 0 {
					makeFree(t, filepath.Join(s.home, "x/pub", fmt.Sprint(n), "free"))
				}
			}
			close(stop)
			t.Logf("%d tries", <-done)
			for i, rule := range keyRules {
				expect.NoError(t, expect.Err(s.applyRules(rulesOfKeys(i))))
				for j, got := range s.try(t, tries) {
					if got != (openResult{}) {
						t.Errorf("%s by %s: %+v", tries[j], rule, got)
					}
				}
			}
			must.Get(s.applyRules("access: {useDefaults: false}"))(t)
			must.Do(t, s.k.apply(s.k.named(s.order.Chat), nil)) // what ended with others is forgotten
			if k := s.k.named(s.order.Chat); len(k.masks)+len(k.hiddenMasks) > 0 {
				t.Errorf("masks are left: %v, %v", k.masks, k.hiddenMasks)
			}
			got := s.try(t, tries)
			expect.True(t, got[0].Read && got[1].Read && got[2].Read, "without rules: %+v", got)
		})
	}
}

// TestMadeBeforeOtherRules: a file was made under a denied name, and the enforcer reads of that only
// when other rules come already. It is denied as long as rules hold that deny that name, and no
// longer, also where others could not be raised meanwhile.
func TestMadeBeforeOtherRules(t *testing.T) {
	const closed, free = "access: {useDefaults: false, deny: ['*.pem']}", "access: {useDefaults: false, deny: ['*.key']}"
	const none = "access: {useDefaults: false}"
	for name, tt := range map[string]struct {
		during, after string // which rules are begun with, and which hold then; "" are those before
		opens         bool
	}{
		"others come":                        {free, free, true},
		"others come after some that failed": {"access: {useDefaults: false, deny: ['*.txt']}", free, true},
		"those that failed denied it":        {closed, free, true},
		"those before go on":                 {free, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := idle(t)
			go func() { _ = s.k.watch.readOpens() }() // nobody reads of names but who is asked
			before := closed
			if tt.during == closed {
				before = none
			}
			if tt.after == "" {
				tt.after = before
			}
			_, err := s.applyRules(before)
			must.Do(t, err)
			made, moved := filepath.Join(s.home, "k.pem"), filepath.Join(s.home, "k.txt")
			makeFree(t, made)
			must.Do(t, os.Rename(made, moved))
			s.begun(t, tt.during)
			got := s.try(t, []string{moved})[0]
			expect.True(t, !got.Read, "while they change: %+v", got)
			if tt.after == tt.during {
				s.settled(t, tt.after)
			} else {
				_, err = s.applyRules(tt.after)
				must.Do(t, err)
			}
			got = s.try(t, []string{moved})[0]
			expect.True(t, got.Read == tt.opens, "then: %+v", got)
		})
	}
}

// begun leaves the session where other rules have begun, and no mask is mounted for them yet.
func (s *inside) begun(t *testing.T, rules string) {
	t.Helper()
	s.within(t, rules, func(k *session, wall *pathclass.Wall) error { return s.k.watch.begin(k, wall, true) })
}

// settled goes on from there, for rules that need no mask.
func (s *inside) settled(t *testing.T, rules string) {
	t.Helper()
	s.within(t, rules, func(k *session, wall *pathclass.Wall) error { return s.k.watch.switchRules(k, wall, -1) })
}

func (s *inside) within(t *testing.T, rules string, do func(*session, *pathclass.Wall) error) {
	t.Helper()
	o, k := s.order, s.k.named(s.order.Chat)
	o.Rules = compiled(rules)
	must.Do(t, sys.InMountNamespace(k.ns, func() error {
		wall, err := pathclass.Compile(sourceOf(o), &pathclass.Links{})
		if err != nil {
			return err
		}
		return do(k, wall)
	}))
}

// TestCompileOpensNothing: rules are compiled again by a worker that takes a session up, and
// nobody answers opens there yet: one of its own would wait for ever.
func TestCompileOpensNothing(t *testing.T) {
	s := idle(t)
	const rules = "access: {useDefaults: false, deny: ['*.pem']}"
	must.Get(s.applyRules(rules))(t)
	done := make(chan bool)
	go func() {
		defer close(done)
		s.within(t, rules, func(*session, *pathclass.Wall) error { return nil })
	}()
	asked := make(chan error, 1)
	go func() { asked <- await(s.k.watch.perm) }()
	select {
	case <-done:
	case err := <-asked:
		t.Errorf("it asks before it opens something: %v", err)
		go func() { _ = s.k.watch.readOpens() }()
		<-done
	}
}

// TestStanding: who stands in a directory while other rules come gets no further by
// names from there than by whole paths.
func TestStanding(t *testing.T) {
	for name, noSwap := range map[string]bool{"swapped": false, "on top": true} {
		t.Run(name, func(t *testing.T) {
			s := newInside(t, false, false)
			s.k.watch.noNames = true
			s.k.noSwap = noSwap
			for _, key := range keys {
				makeFree(t, filepath.Join(s.home, key))
			}
			makeFree(t, filepath.Join(s.home, "x/pub/d/free"))
			stood := 0
			for i, from := range keyRules {
				for j, to := range keyRules {
					if testing.Short() && rand.IntN(3) > 0 {
						continue
					}
					for dir, names := range map[string][]string{"x": {"key", "pub/key", "pub/d/key"}, "x/pub": {"key", "d/key"}, "x/pub/d": {"key"}} {
						must.Get(s.applyRules(rulesOfKeys(i)))(t)
						if !s.try(t, []string{"cd " + filepath.Join(s.home, dir)})[0].Read {
							continue // it is closed
						}
						stood++
						must.Get(s.applyRules(rulesOfKeys(j)))(t)
						for n, got := range s.try(t, names) {
							if got != (openResult{}) {
								t.Errorf("from %s, %s: %+v after %q and %q", dir, names[n], got, from, to)
							}
						}
						s.try(t, []string{"cd /"})
					}
				}
			}
			expect.True(t, stood != 0, "nobody stood anywhere")
		})
	}
}

// TestExceptionsStay: a look that finds nothing new changes no mount, and one that finds a
// new exception changes no other.
func TestExceptionsStay(t *testing.T) {
	s := newInside(t, false, false)
	s.k.watch.noNames = true
	exception := func(name string) string { return filepath.Join(s.home, "x", name, "pub") }
	key := filepath.Join(s.home, "x/key")
	makeFree(t, key)
	makeFree(t, exception("a"))
	makeFree(t, filepath.Join(s.home, "x/b/key"))
	must.Do(t, os.MkdirAll(filepath.Join(s.home, "empty"), 0o755))
	must.Get(s.applyRules("access: {useDefaults: false, mode: first-match, rules: [{allow: '**/pub'}, {deny: ~/x/**}, {deny: ~/empty/**}]}"))(t)
	k := s.k.named(s.order.Chat)
	look := func() map[string]uint64 {
		t.Helper()
		must.Do(t, s.k.apply(k, nil))
		ids := map[string]uint64{}
		for _, c := range k.masks {
			ids[c.Path] = c.ID
		}
		return ids
	}
	before := look()
	makeFree(t, exception("b"))
	makeFree(t, filepath.Join(s.home, "empty/pub"))
	after := look()
	for p, id := range before {
		if after[p] != id {
			t.Errorf("%s is another mount: %d, was %d", p, after[p], id)
		}
	}
	names := []string{key, exception("a"), exception("b"), filepath.Join(s.home, "empty/pub")}
	got := s.try(t, names)
	free := openResult{true, true, true}
	expect.True(t, got[0] == (openResult{}) && got[1] == free && got[2] == free && got[3] == free,
		"got %+v", got)
	must.Do(t, os.Remove(exception("a")))
	makeFree(t, filepath.Join(exception("a"), "pub")) // what was a file is a directory
	look()
	got = s.try(t, []string{key, filepath.Join(exception("a"), "pub"), exception("b")})
	expect.True(t, got[0] == (openResult{}) && got[1] == free && got[2] == free, "after it was replaced: %+v", got)
}

// begunMasked is a session in which bubblewrap masks names of the home.
func begunMasked(t *testing.T, names ...string) *inside {
	t.Helper()
	needsRoot(t)
	s := &inside{masks: names}
	s.settleIn(t, "00000000000000aa")
	s.k.watch.noNames = true // masks stay where nothing reports names
	s.answer()
	return s
}

// mountsAt are the ids of what is mounted below the session's home.
func (s *inside) mountsAt(t *testing.T) (all []int) {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.order.PID)))(t)
	lines := must.Get(sys.ParseMounts(string(text)))(t)
	for _, l := range lines {
		if strings.HasPrefix(l.Path, s.home+"/") {
			all = append(all, l.ID)
		}
	}
	return all
}

func (s *inside) reads(t *testing.T, names ...string) (all []bool) {
	t.Helper()
	for i, name := range names {
		names[i] = filepath.Join(s.home, name)
	}
	for _, got := range s.try(t, names) {
		all = append(all, got.Read)
	}
	return all
}

// TestStartMasks: bubblewrap's masks hold before the enforcer comes, become its masks as they are,
// and go when rules open what is below them.
func TestStartMasks(t *testing.T) {
	s := begunMasked(t, "note", "keys/", "other")
	names := func() []string { return []string{"note", "keys/in", "other"} }
	got := s.reads(t, names()...)
	must.True(t, !slices.Contains(got, true), "before the enforcer: %v", got)
	deny := "access: {useDefaults: false, deny: [~/note, ~/keys]}"
	a := must.Get(s.applyRules(deny))(t)
	got = s.reads(t, names()...)
	expect.True(t, slices.Equal(got, []bool{false, false, true}), "by rules about two of three: %v", got)
	first := s.mountsAt(t)
	expect.True(t, a.Masks == 2 && len(first) == 2,
		"%d masks are reported, %d mounts are there, want the two of bubblewrap's", a.Masks, len(first))
	for _, c := range []struct {
		rules string
		want  []bool
	}{
		{"access: {useDefaults: false, deny: [~/keys]}", []bool{true, false, true}},
		{"access: {useDefaults: false, mode: first-match, rules: [{allow: ~/keys/in}, {deny: ~/keys}]}", []bool{true, true, true}},
		{deny, []bool{false, false, true}},
		{"access: {useDefaults: false, deny: [~/nothing]}", []bool{true, true, true}},
		{deny, []bool{false, false, true}},
	} {
		must.Get(s.applyRules(c.rules))(t)
		if got := s.reads(t, names()...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.rules, got, c.want)
		}
	}
}

// TestStartMasksStay: while rules close the same, bubblewrap's own mounts stay.
func TestStartMasksStay(t *testing.T) {
	s := begunMasked(t, "note", "keys/")
	made := s.mountsAt(t)
	must.True(t, len(made) == 2, "bubblewrap made the mounts %v, want two", made)
	for range 2 {
		must.Get(s.applyRules("access: {useDefaults: false, deny: [~/note, ~/keys]}"))(t)
		now := s.mountsAt(t)
		expect.True(t, slices.Equal(now, made), "the mounts are %v, were %v", now, made)
	}
}
