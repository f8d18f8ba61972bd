package exposure

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/sys"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// FuzzReaches: root never skips a directory that holds a match.
func FuzzReaches(f *testing.F) {
	for _, p := range []string{"^/x/[^/]+/y$", "^/x/.*\\.txt$", "^/x/(a|bc)+/d", "^/x/a{2,5}\\b/z", "^/x/$", "^/x/(?:a$|b)", "^/x/\\d+\\B"} {
		f.Add(p, "/x/ab/y")
	}
	f.Add("^/", "\xe8\xe80") // a prefix may end within a character, a name need not be UTF-8
	f.Add("^/x/(a|KA)+", "/x/a080")
	f.Add("^()0", "0")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		re, err := regexp.Compile(pattern)
		if err != nil || !strings.HasPrefix(pattern, "^/") || !utf8.ValidString(text) || len(pattern)+len(text) > 60 || strings.Contains(pattern, "{") {
			return
		}
		if at := re.FindStringIndex(text); at == nil || at[0] != 0 {
			return
		}
		r := must.Get(newReacher(pattern))(t)
		for i := range text {
			expect.True(t, r.reaches(text[:i]),
				"%q finds %q, but nothing that begins with %q", pattern, text, text[:i])
		}
	})
}

func TestReaches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"^/x/[^/]+/y$", "/x/a/", true}, {"^/x/[^/]+/y$", "/x/a/b/", false}, {"^/x/allow$", "/x/allow/", false}, {"^/x/allow", "/x/allow/", true},
		{"^/sys/class/net/[^/]+/address$", "/sys/class/net/lo/subsystem/", false}, {"^/x/.*\\.txt$", "/x/a/b/c/", true}, {"^/x/a*/b", "/y/", false},
		{"^/x/(a*)*c", "/x/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true},
	} {
		r, err := newReacher(c.pattern)
		expect.True(t, err == nil && r.reaches(c.text) == c.want,
			"%s reaches %s: %t, %v", c.pattern, c.text, !c.want, err)
	}
}

const someMounts = `21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw - proc proc rw
23 21 254:1 / /srv rw - ext4 /dev/vdb rw
24 21 254:1 /chatd /mnt/with\040blank rw - ext4 /dev/vdb rw
25 21 254:1 /other /mnt/other rw - ext4 /dev/vdb rw
26 21 0:30 / /data rw - xfs /dev/vdc rw
27 26 0:20 / /data/jail/proc rw - proc proc rw
28 26 254:1 / /data/all/of/it rw - ext4 /dev/vdb rw
`

// A source is identified by device and path, not by its name.
func TestMayExpose(t *testing.T) {
	mounts := must.Get(sys.ParseMounts(someMounts))(t)
	h := &Host{mounts: mounts, own: []string{"/srv/chatd/homes", "/var/lib/chatd"}}
	for p, why := range map[string]string{
		"/srv": "chatd's own", "/srv/chatd": "chatd's own", "/srv/chatd/homes": "chatd's own", "/srv/chatd/homes/x": "chatd's own",
		"/srv/chatd/other": "", "/srv/chat": "", "/srv/chatd/homes2": "",
		"/mnt/with blank": "chatd's own", "/mnt/with blank/homes/x": "chatd's own", "/mnt/with blank/else": "", "/mnt/other": "",
		"/data": "chatd's own", "/data/jail": "proc is mounted in it", "/data/x": "", "/data/all": "chatd's own", "/mnt": "chatd's own", "/var/lib": "chatd's own", "/var/lib/x": "", "/opt": "",
	} {
		if err := h.mayExpose(p); (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", p, err, why)
		}
	}
}

// Open returns the tree of this process, or of process 1 if systemd starts the sessions.
func TestOpenHost(t *testing.T) {
	for _, units := range []bool{false, true} {
		if units && os.Geteuid() != 0 {
			continue // only root may look through process 1
		}
		uid := uint32(0)
		if os.Geteuid() == 0 {
			uid = 1895825322
		}
		h, err := Open(units, nil, uid, nil)
		if units && errors.Is(err, fs.ErrPermission) {
			t.Log("NOT TRIED: process 1 of this machine lets not even root look through it")
			continue
		}
		must.Do(t, err)
		for p, want := range map[string]error{"/usr/bin/env/x": chat.ErrInvalid, "/none": errNotThere, "/usr/none/x": errNotThere} {
			if _, err := h.source(p); !errors.Is(err, want) {
				t.Errorf("units %t: %s: %v, want %v", units, p, err, want)
			}
		}
		if f, err := h.source("/usr/bin"); err != nil || f.file {
			t.Errorf("units %t: /usr/bin: %+v, %v", units, f, err)
		}
		if err := h.passable([]string{"/usr/bin", "/etc/passwd"}); err != nil {
			t.Errorf("units %t: %v", units, err)
		}
		if err := h.passable([]string{"/root/x"}); uid != 0 && !errors.Is(err, unix.EACCES) {
			t.Errorf("units %t: uid %d may pass /root: %v", units, uid, err)
		}
		expect.NoError(t, h.Close())
	}
}

// Each path is mounted once, with its mode: a read grant removes no write access, and a write
// grant adds it inside a read-only exposure.
func TestSettle(t *testing.T) {
	same := func(p string, mode chat.Mode, by string) chat.Exposed {
		return chat.Exposed{Source: p, Target: p, Mode: mode, By: by}
	}
	rule, read, write := "expose_paths[0]", "allow_read_paths[0]", "allow_write_paths[0]"
	for name, c := range map[string]struct {
		all  []chat.Exposed
		want string
		note string
	}{
		"read in rw":        {[]chat.Exposed{same("/d", chat.ReadWrite, rule), same("/d/x", chat.ReadOnly, read)}, "/d rw", ""},
		"read in ro":        {[]chat.Exposed{same("/d", chat.ReadOnly, rule), same("/d/x", chat.ReadOnly, read)}, "/d ro", ""},
		"write in ro":       {[]chat.Exposed{same("/d", chat.ReadOnly, rule), same("/d/x", chat.ReadWrite, write)}, "/d ro, /d/x rw", ""},
		"read in that":      {[]chat.Exposed{same("/d", chat.ReadOnly, rule), same("/d/x", chat.ReadWrite, write), same("/d/x/y", chat.ReadOnly, read)}, "/d ro, /d/x rw", ""},
		"both of one":       {[]chat.Exposed{same("/d/x", chat.ReadWrite, write), same("/d/x", chat.ReadOnly, read)}, "/d/x rw", ""},
		"beside":            {[]chat.Exposed{same("/d", chat.ReadOnly, rule), same("/d-x", chat.ReadOnly, read)}, "/d ro, /d-x ro", ""},
		"something else":    {[]chat.Exposed{{Source: "/e", Target: "/d", Mode: chat.ReadOnly, By: rule}, same("/d/x", chat.ReadOnly, read)}, "/d ro", "is of expose_paths[0]"},
		"something else, w": {[]chat.Exposed{{Source: "/e", Target: "/d", Mode: chat.ReadOnly, By: rule}, same("/d/x", chat.ReadWrite, write)}, "/d ro", "is of expose_paths[0]"},
	} {
		out, notes, err := (&Host{}).dropCovered(c.all, nil)
		var got []string
		for _, e := range out {
			got = append(got, e.Target+" "+string(e.Mode))
		}
		if err != nil || strings.Join(got, ", ") != c.want || !strings.Contains(strings.Join(notes, " "), c.note) || c.note == "" && len(notes) > 0 {
			t.Errorf("%s: %q, %q, %v; want %s, %s", name, got, notes, err, c.want, c.note)
		}
	}
	targets := []string{"/d/x/y", "/d-x", "/d", "/d/x", "/c"}
	slices.SortFunc(targets, sys.ComparePaths)
	if got := strings.Join(targets, " "); got != "/c /d /d/x /d/x/y /d-x" {
		t.Errorf("order: %s", got)
	}
}
