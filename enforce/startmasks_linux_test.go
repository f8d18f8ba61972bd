package enforce

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

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
	if got := s.reads(t, names()...); slices.Contains(got, true) {
		t.Fatalf("before the enforcer: %v", got)
	}
	deny := "access: {useDefaults: false, deny: [~/note, ~/keys]}"
	a := must.Get(s.hold(deny))(t)
	if got := s.reads(t, names()...); !slices.Equal(got, []bool{false, false, true}) {
		t.Errorf("by rules about two of three: %v", got)
	}
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
		must.Get(s.hold(c.rules))(t)
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
		must.Get(s.hold("access: {useDefaults: false, deny: [~/note, ~/keys]}"))(t)
		if now := s.mountsAt(t); !slices.Equal(now, made) {
			t.Errorf("the mounts are %v, were %v", now, made)
		}
	}
}
