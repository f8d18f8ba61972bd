package chat

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/test/must"
)

func TestCheckExposePaths(t *testing.T) {
	ok := Expose{Source: "/data/x", Mode: ReadOnly}
	for _, c := range []struct {
		name  string
		rules []Expose
		key   string
		why   string
	}{
		{"nothing", nil, "", ""},
		{"target is source", []Expose{ok}, "", ""},
		{"of the seed", []Expose{{"/opt/toolchains/go", "/opt/toolchains/go", ReadOnly}, {"/data/shared-assets", "/opt/picoclaw-instance-a/workspace/assets", ReadWrite}}, "", ""},
		{"in the home", []Expose{{"/data/x", "~/a/b", ReadWrite}}, "", ""},
		{"an instance directory", []Expose{{"/data/x", "~/skills", ReadOnly}}, "", ""},
		{"nested", []Expose{{"/data/x", "/data/x", ReadOnly}, {"/data/y", "/data/x/y", ReadWrite}}, "", ""},
		{"system, ro", []Expose{{"/usr/share/doc", "/opt/doc", ReadOnly}}, "", ""},
		{"of /etc", []Expose{{"/etc/motd", "", ReadOnly}}, "", ""},
		{"no mode", []Expose{{Source: "/data/x"}}, "expose_paths[0].mode", "want ro or rw"},
		{"mode", []Expose{ok, {"/data/y", "", "RW"}}, "expose_paths[1].mode", `"RW": want ro or rw`},
		{"no source", []Expose{{Mode: ReadOnly}}, "expose_paths[0].source", "it is empty"},
		{"relative", []Expose{{"data", "", ReadOnly}}, "expose_paths[0].source", "is relative"},
		{"up", []Expose{{"/data/../etc", "", ReadOnly}}, "expose_paths[0].source", `holds ".."`},
		{"NUL", []Expose{{"/data/\x00", "", ReadOnly}}, "expose_paths[0].source", "holds a NUL"},
		{"the host", []Expose{{"/", "/opt/host", ReadOnly}}, "expose_paths[0].source", "the whole host"},
		{"slashes", []Expose{{"//", "/opt/host", ReadOnly}}, "expose_paths[0].source", "the whole host"},
		{"/etc", []Expose{{"/etc", "/opt/etc", ReadOnly}}, "expose_paths[0].source", "holds passwords"},
		{"/etc/", []Expose{{"/etc/", "/opt/etc", ReadOnly}}, "expose_paths[0].source", "holds passwords"},
		{"/root", []Expose{{"/root/x", "/opt/x", ReadOnly}}, "expose_paths[0].source", "root's own"},
		{"docker", []Expose{{"/var/run/docker.sock", "/opt/x", ReadOnly}}, "expose_paths[0].source", "sockets of the host's services"},
		{"/var", []Expose{{"/var", "/opt/x", ReadOnly}}, "expose_paths[0].source", "sockets of the host's services"},
		{"proc", []Expose{{"/proc/cpuinfo", "/opt/x", ReadOnly}}, "expose_paths[0].source", "everybody's processes"},
		{"device", []Expose{{"/dev/sda", "/opt/x", ReadOnly}}, "expose_paths[0].source", "devices"},
		{"userdb", []Expose{{"/etc/userdb", "/opt/x", ReadOnly}}, "expose_paths[0].source", "names the other chats"},
		{"system, rw", []Expose{{"/usr/local/share", "/opt/x", ReadWrite}}, "expose_paths[0].source", "want mode ro"},
		{"relative target", []Expose{{"/data/x", "x", ReadOnly}}, "expose_paths[0].target", "is relative"},
		{"target up", []Expose{{"/data/x", "/opt/../etc", ReadOnly}}, "expose_paths[0].target", `holds ".."`},
		{"target NUL", []Expose{{"/data/x", "/opt/\x00", ReadOnly}}, "expose_paths[0].target", "NUL"},
		{"all of it", []Expose{{"/data/x", "/", ReadOnly}}, "expose_paths[0].target", "whole session"},
		{"up from home", []Expose{{"/data/x", "~/../x", ReadOnly}}, "expose_paths[0].target", "below the home"},
		{"home", []Expose{{"/data/x", "~/", ReadOnly}}, "expose_paths[0].target", "would cover the chat's own"},
		{"home too", []Expose{{"/data/x", "~", ReadOnly}}, "expose_paths[0].target", "is relative"},
		{"home of another", []Expose{{"/data/x", "~root/x", ReadOnly}}, "expose_paths[0].target", "is relative"},
		{"environment", []Expose{{"/data/x", "~/runtime-user-env/tmp", ReadOnly}}, "expose_paths[0].target", "would cover the chat's own"},
		{"environment whole", []Expose{{"/data/x", "~/runtime-user-env", ReadOnly}}, "expose_paths[0].target", "would cover the chat's own"},
		{"twice", []Expose{ok, {"/data/y", "/data/x", ReadWrite}}, "expose_paths[1]", "has a rule already, expose_paths[0]"},
		{"twice, spelled apart", []Expose{ok, {"/data/y", "/data//x/", ReadWrite}}, "expose_paths[1]", "has a rule already"},
	} {
		key, err := CheckExposePaths(c.rules)
		if key != c.key || (err == nil) != (c.why == "") || err != nil && (!strings.Contains(err.Error(), c.why) || !errors.Is(err, ErrInvalid)) {
			t.Errorf("%s: %s: %v\nwant %s: %s", c.name, key, err, c.key, c.why)
		}
	}
	for _, own := range []string{"/opt/chatd", "/opt/chatd/bin", "/opt", "/run", "/run/chat/x", "/proc", "/proc/self", "/dev/shm", "/etc", "/etc/passwd", "/etc/resolv.conf",
		"/usr", "/usr/bin/env", "/bin", "/lib64", "/tmp", "/tmp/x", "/var", "/var/tmp", "/sys/x"} {
		if key, err := CheckExposePaths([]Expose{{"/data/x", own, ReadOnly}}); key != "expose_paths[0].target" || err == nil || !strings.Contains(err.Error(), "chatd's own") {
			t.Errorf("target %s: %s: %v", own, key, err)
		}
	}
}

func TestOverrideExpose(t *testing.T) {
	got := OverrideExpose(
		[]Expose{{"/a", "/x", ReadOnly}, {"/b", "", ReadOnly}, {"/c", "~/c", ReadOnly}},
		[]Expose{{"/d", "/x/", ReadWrite}, {"/e", "~//c", ReadWrite}, {"/f", "", ReadOnly}})
	want := []Expose{{"/d", "/x", ReadWrite}, {"/b", "/b", ReadOnly}, {"/e", "~/c", ReadWrite}, {"/f", "/f", ReadOnly}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestParseGrant(t *testing.T) {
	for _, c := range []struct {
		pattern string
		mode    Mode
		dir     string
		path    string
		own     bool
		why     string
	}{
		// Expressions from PicoClaw's page.
		{"^/etc/hosts$", ReadOnly, "/etc", "/etc/hosts", true, ""},
		{"^/etc/resolv\\.conf$", ReadOnly, "/etc", "/etc/resolv.conf", true, ""},
		{"^/proc/cpuinfo$", ReadOnly, "/proc", "/proc/cpuinfo", true, ""},
		{"^/sys/class/net/[^/]+/address$", ReadOnly, "/sys/class/net", "", false, ""},
		{"^/tmp/picoclaw-.*\\.txt$", ReadWrite, "/tmp", "", true, ""},
		{"^/tmp/picoclaw-[0-9a-f]{8}.*$", ReadWrite, "/tmp", "", true, ""},
		{"^/tmp/.*\\.log$", ReadOnly, "/tmp", "", true, ""},
		{"^/proc/.*", ReadOnly, "", "", false, "below /proc a grant is one file"},

		{"^/x/allow", ReadOnly, "/x", "/x/allow", false, ""},
		{"^/x/allow/", ReadOnly, "/x", "/x/allow", false, ""},
		{"^/x/(a|b)/c", ReadOnly, "/x", "", false, ""},
		{"^/x/a|^/x/b", ReadOnly, "", "", false, "no literal beginning"},
		{"^/x/ab*", ReadOnly, "/x", "", false, ""},
		{"^/data", ReadOnly, "/", "/data", false, ""},
		{"^/usr/share/doc/.*", ReadOnly, "/usr/share/doc", "", true, ""},
		{"^/sys/.*", ReadOnly, "/sys", "", false, ""},
		{"/x/allow", ReadOnly, "", "", false, "no literal beginning"},
		{"^/.*", ReadOnly, "", "", false, "no literal beginning"},
		{"^/data.*", ReadOnly, "", "", false, "no literal beginning"},
		{"^.*/x", ReadOnly, "", "", false, "no literal beginning"},
		{"(?i)^/x/allow", ReadOnly, "", "", false, "no literal beginning"},
		{"(?m)^/x/allow", ReadOnly, "", "", false, "no literal beginning"},
		{"^/a/x|^/b/x", ReadOnly, "", "", false, "no literal beginning"},
		{"^/a/x|/b", ReadOnly, "", "", false, "no literal beginning"},
		{"", ReadOnly, "", "", false, "no literal beginning"},
		{"^x/y", ReadOnly, "", "", false, "no literal beginning"},
		{"^/x/(", ReadOnly, "", "", false, "want a regular expression"},
		{"^/x/\\.\\./y/.*", ReadOnly, "", "", false, `holds ".."`},
		{"^/x/\x00/y", ReadOnly, "", "", false, "NUL"},
		{"^/proc$", ReadOnly, "", "", false, "want a file"},
		{"^/sys$", ReadOnly, "", "", false, "want a file"},
		{"^/proc/cpuinfo$", ReadWrite, "", "", false, "for reading"},
		{"^/sys/class/x/.*", ReadWrite, "", "", false, "for reading"},
		{"^/etc/hosts$", ReadWrite, "", "", false, "not for writing"},
		{"^/usr/local/x/.*", ReadWrite, "", "", false, "not for writing"},
		{"^/etc/shadow$", ReadOnly, "", "", false, "holds passwords"},
		{"^/etc/ssh/.*", ReadOnly, "", "", false, "host's keys"},
		{"^/etc/x/.*", ReadWrite, "", "", false, "granted for writing"},
		{"^/run/.*\\.sock", ReadOnly, "", "", false, "sockets"},
		{"^/root/", ReadOnly, "", "", false, "root's own"},
	} {
		g, err := ParseGrant(c.pattern, c.mode)
		if c.why != "" {
			if err == nil || !strings.Contains(err.Error(), c.why) || !errors.Is(err, ErrInvalid) {
				t.Errorf("%s %s: %+v, %v; want %s", c.mode, c.pattern, g, err, c.why)
			}
			continue
		}
		if err != nil || g.Dir != c.dir || g.Path != c.path || g.Own != c.own {
			t.Errorf("%s %s: %+v, %v; want %+v", c.mode, c.pattern, g, err, c)
		}
	}
}

// A grant matches whole names only, as in package files.
func TestGrantIsBound(t *testing.T) {
	for pattern, c := range map[string]struct{ matches, below, not string }{
		"^/x/allow":       {"/x/allow", "/x/allow/", "/x/allowed-not"},
		"^/x/allow$":      {"/x/allow", "", "/x/allow/y"},
		"^/x/allow/":      {"", "/x/allow/", "/x/allow"},
		"^/x/[^/]+\\.txt": {"/x/a.txt", "/x/a.txt/", "/x/a.txts"},
		"^/x/.*":          {"/x/a/b", "/x/a/", "/y/a"},
	} {
		g := must.Get(ParseGrant(pattern, ReadOnly))(t)
		bound, err1 := g.Bound()
		below, err2 := g.Below()
		must.Do(t, errors.Join(err1, err2))
		if c.matches != "" && !bound.MatchString(c.matches) || (c.below != "") != below.MatchString(c.matches+"/") && c.below != "/x/allow/" || bound.MatchString(c.not) {
			t.Errorf("%s: matches %t, below %t, not %t", pattern, bound.MatchString(c.matches), below.MatchString(c.below), bound.MatchString(c.not))
		}
		if c.below != "" && !below.MatchString(c.below) {
			t.Errorf("%s does not stand for what is below %s", pattern, c.below)
		}
	}
}

// FuzzParseGrant: a match of an accepted expression is below its directory, and equals its path if
// it has one; paths below a match of Below match too.
func FuzzParseGrant(f *testing.F) {
	for _, p := range []string{"^/x/allow", "^/x/(a|b)$", "^/etc/hosts$", "^/x/[^/]+/y", "^/x/.*\\.log$", "^/x/y/", "|", "(?i", "^//0*$*$*$"} {
		f.Add(p, "/x/allow/y")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		g, err := ParseGrant(pattern, ReadOnly)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", pattern, err)
			}
			return
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			t.Fatalf("accepted %q: %v", pattern, err)
		}
		name = path.Clean("/" + name)
		if at := re.FindStringIndex(name); at != nil && !Within(name, g.Dir) {
			t.Errorf("%q finds %q, which is not below %s", pattern, name, g.Dir)
		}
		bound, err1 := g.Bound()
		below, err2 := g.Below()
		if errors.Join(err1, err2) != nil {
			t.Fatal(err1, err2)
		}
		if bound.MatchString(name) && g.Path != "" && !Within(name, g.Path) {
			t.Errorf("%q stands for %q, and says it is %s", pattern, name, g.Path)
		}
		if below.MatchString(name+"/") && !bound.MatchString(name+"/anything") && !strings.Contains(pattern, `\`) && !strings.ContainsAny(pattern, "(?") {
			t.Errorf("%q: all below %q, but not anything", pattern, name)
		}
	})
}
