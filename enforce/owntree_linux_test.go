package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestOwnTree: in a tree that the chat writes to, a closed file and directory have no mount. They
// can be renamed, moved with what is around them, linked and removed, and stay closed meanwhile.
func TestOwnTree(t *testing.T) {
	const rules = `{access: {useDefaults: false, deny: ["**/.env", "~/deep/er", "**/secrets/**"]}}`
	for name, c := range map[string]struct {
		act         func(at func(string) string) error
		closed, top string
	}{
		"renamed":         {rename(".env", "plain"), "plain", "plain"},
		"moved":           {rename("a/b/.env", "c"), "c", "c"},
		"parent moved":    {rename("a", "z"), "z/b/.env", "z"},
		"parents, twice":  {both(rename("a/b", "y"), rename("y", "x")), "x/.env", "x"},
		"linked":          {link(".env", "other"), "other", "other"},
		"linked before":   {rename("earlier", "name"), "name", "name"},
		"linked from in":  {link("secrets/k", "k2"), "k2", "k2"},
		"made in a moved": {made("secrets", "x", "x/new", "n"), "n", "x"},
		"a directory":     {rename("secrets", "open"), "open/k", "open"},
		"out of one":      {both(rename("secrets/k", "k"), rename("k", "l")), "l", "l"},
		"by a long name":  {both(rename("deep", "d"), rename("d/er", "e")), "e", "e"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newInside(t, false, false)
			at := func(name string) string { return filepath.Join(s.home, name) }
			for _, f := range []string{".env", "a/b/.env", "secrets/k", "deep/er", "free"} {
				makeFree(t, at(f))
			}
			must.Do(t, os.Link(at(".env"), at("earlier")))
			must.Get(s.hold(rules))(t)
			if m := s.mountsAt(t); len(m) > 0 {
				t.Errorf("%d mounts are in the home", len(m))
			}
			must.Do(t, c.act(at))
			got := s.reads(t, c.closed, "free")
			expect.True(t, slices.Equal(got, []bool{false, true}),
				"read %v, want the closed one refused alone", got)
			must.Do(t, os.RemoveAll(at(c.top)))
		})
	}
}

func rename(from, to string) func(func(string) string) error {
	return func(at func(string) string) error { return os.Rename(at(from), at(to)) }
}

func link(from, to string) func(func(string) string) error {
	return func(at func(string) string) error { return os.Link(at(from), at(to)) }
}

// made moves a directory, makes a file in it, and links that.
func made(dir, to, file, name string) func(func(string) string) error {
	return func(at func(string) string) error {
		return errors.Join(os.Rename(at(dir), at(to)), os.WriteFile(at(file), []byte("x"), 0o666),
			os.Chmod(at(file), 0o666), os.Link(at(file), at(name)))
	}
}

func both(a, b func(func(string) string) error) func(func(string) string) error {
	return func(at func(string) string) error {
		if err := a(at); err != nil {
			return err
		}
		return b(at)
	}
}
