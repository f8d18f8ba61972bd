package exposure

import (
	"testing"

	"github.com/chatd/chatd/chat"
)

// TestWritable: a path is writable if a profile opens it, a directory around it or a path in it.
func TestWritable(t *testing.T) {
	of := func(source string, mode chat.Mode) chat.Profile {
		return chat.Profile{ExposePaths: []chat.Expose{{Source: source, Target: "/t", Mode: mode}}}
	}
	for _, c := range []struct {
		profile chat.Profile
		want    bool
	}{
		{chat.Profile{}, false}, {of("/srv/a", chat.ReadOnly), false},
		{of("/srv/a", chat.ReadWrite), true},
		{of("/srv/", chat.ReadWrite), true}, {of("/srv/a/in/it", chat.ReadWrite), true},
		{of("/srv/ab", chat.ReadWrite), false},
		{chat.Profile{AllowWritePaths: []string{"^/x$"}}, true},
	} {
		profiles := map[string]chat.Profile{"other": {}, "p": c.profile}
		if got := Writable(profiles, "/srv/a"); got != c.want {
			t.Errorf("%+v: %v", c.profile, got)
		}
	}
}
