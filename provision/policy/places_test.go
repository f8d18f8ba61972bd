package policy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestCheckPlaces: the same rules are counted once in the same trees, and those that the kernel
// does not enforce never.
func TestCheckPlaces(t *testing.T) {
	dir := t.TempDir()
	for i := range 2000 {
		must.Do(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	shared := []chat.Exposed{{Source: dir, Target: "/data", Mode: chat.ReadOnly}}
	many := policies(t, "access: {useDefaults: false, deny: ['/data/[0-9]*']}\n")[one.Profile]
	few := policies(t, "access: {useDefaults: false, deny: [/data/7]}\n")[one.Profile]
	inert := policies(t, "access: {useDefaults: false}\n")[one.Profile]
	expect.NoError(t, checkPlaces(t.Context(), many, one.Home, shared))
	all := map[string]*filerules.Policy{
		"a": many, "b": many, "few": few, "inert": inert,
	}
	var asked []string
	trees := func(profile string) []chat.Exposed {
		asked = append(asked, profile)
		return shared
	}
	expect.NoError(t, checkAllPlaces(t.Context(), all, one.Home, trees))
	expect.True(t, slices.Equal(asked, []string{"a", "b", "few"}), "asked for the trees of %q", asked)
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("given up"))
	err := checkAllPlaces(gone, all, one.Home, trees)
	if err == nil || !strings.Contains(err.Error(), "profile a:") ||
		strings.Contains(err.Error(), "profile b:") {
		t.Errorf("a count that was given up: %v", err)
	}
}

// TestNeeded: an agent whose rules deny nothing needs no enforcer, and its profile may all the
// same.
func TestBookNeeded(t *testing.T) {
	own := "access: {useDefaults: false}\nagents: {a: {access: {deny: [/data/x]}}}\n"
	b := newBook(map[string]*filerules.Policy{
		"own": policies(t, own)[one.Profile],
		"all": policies(t, "access: {useDefaults: false, deny: [/data/x]}\n")[one.Profile],
	})
	for _, c := range []struct {
		profile, agent string
		want           bool
	}{
		{"all", "", true}, {"all", "a", true}, {"own", "a", true}, {"own", "", false},
		{"none", "a", false},
	} {
		expect.True(t, b.needed(c.profile, c.agent) == c.want, "%+v", c)
	}
	if got := b.enforced(); !slices.Equal(got, []string{"all", "own"}) {
		t.Errorf("%q", got)
	}
}

// TestKeysIn: a profile has the keys of the last reload, and its own where those have none.
func TestKeysIn(t *testing.T) {
	k := keySet{"p": {ToolsOff: []string{"exec"}, TimeoutMax: 7}}
	old := chat.Profile{Name: "p", TimeoutMax: 1, Commands: []string{"ls"}}
	got := k.in(old, "p")
	expect.True(t, got.TimeoutMax == 7 && len(got.ToolsOff) == 1 && len(got.Commands) == 1, "%+v", got)
	for _, keys := range []keySet{nil, {"q": {}}} {
		if got := keys.in(old, "p"); got.TimeoutMax != 1 {
			t.Errorf("%+v", got)
		}
	}
}
