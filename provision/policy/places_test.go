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
)

// TestCheckPlaces: the same rules are counted once in the same trees, and those that the kernel
// does not enforce never.
func TestCheckPlaces(t *testing.T) {
	dir := t.TempDir()
	for i := range 2000 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	shared := []chat.Exposed{{Source: dir, Target: "/data", Mode: chat.ReadOnly}}
	many := policies(t, "access: {useDefaults: false, deny: ['/data/[0-9]*']}\n")[one.Profile]
	few := policies(t, "access: {useDefaults: false, deny: [/data/7]}\n")[one.Profile]
	inert := policies(t, "access: {useDefaults: false}\n")[one.Profile]
	if err := checkPlaces(t.Context(), many, one.Home, shared); err != nil {
		t.Error(err)
	}
	all := map[string]*filerules.Policy{
		"a": many, "b": many, "few": few, "inert": inert,
	}
	var asked []string
	trees := func(profile string) []chat.Exposed {
		asked = append(asked, profile)
		return shared
	}
	if err := checkAllPlaces(t.Context(), all, one.Home, trees); err != nil {
		t.Error(err)
	}
	if !slices.Equal(asked, []string{"a", "b", "few"}) {
		t.Errorf("asked for the trees of %q", asked)
	}
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
		if b.needed(c.profile, c.agent) != c.want {
			t.Errorf("%+v", c)
		}
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
	if got.TimeoutMax != 7 || len(got.ToolsOff) != 1 || len(got.Commands) != 1 {
		t.Errorf("%+v", got)
	}
	for _, keys := range []keySet{nil, {"q": {}}} {
		if got := keys.in(old, "p"); got.TimeoutMax != 1 {
			t.Errorf("%+v", got)
		}
	}
}
