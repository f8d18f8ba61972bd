package filerules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	. "github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func mustLoad(t testing.TB, text string) *Policy {
	t.Helper()
	p, err := rulefile.Load("p.yaml", []byte(text))
	must.True(t, err == nil, "%v\n%s", err, text)
	return p
}

func ruleset(t testing.TB, text, home, cwd string) *Ruleset {
	t.Helper()
	rs := must.Get(mustLoad(t, text).For(Scope{Home: home, Cwd: cwd}))(t)
	return rs
}

// sentences are the spec's sentences about one pattern: the paths that a deny of it covers, with
// home /home/u and working directory /home/u/w, and paths that it does not.
var sentences = []struct{ says, pattern, covers, not string }{
	{"dir/** covers dir itself", "/d/**", "/d /d/x /d/x/y /d/.x /d/.", "/dd /x/d / /d/.. /d/../e"},
	{"~ is the home", "~/.ssh/**", "~/.ssh /home/u/.ssh/id /home/u/w/../.ssh/id ../.ssh/id", "/home/v/.ssh/id /.ssh/id w/.ssh"},
	{"~ alone is the home", "~", "~ ~/x /home/u .", "/home /home/u2 /home/u/.."},
	{"only ~ and ~/ expand", "~v/x", "/home/u/w/~v/x ~v/x", "/home/v/x ~/v/x"},
	{"a ~ within is a name", "/a/~/b", "/a/~/b", "/a/home/u/b"},
	{"without slash: the last segment", "*.pem", "/a.pem a.pem /x/y/.pem", "/a.pem/x /a.pe"},
	{"without slash and wildcard: also what is under it", ".env", ".env /x/.env /x/.env/y", "/x/.env2 /x/x.env"},
	{"without wildcard: the path and everything under it", "/srv/x", "/srv/x /srv/x/y/z /srv//x/./y", "/srv /srv/xy /srv/x/../y"},
	{"leading dots are not special", "/d/*", "/d/.x /d/x", "/d /d/x/y"},
	{"leading dots are not special for ?", "?env", ".env xenv", "env .enva"},
	{"leading dots are not special for **", "/d/**/x", "/d/.a/x /d/x /d/a/.b/x", "/x /d/xx"},
	{"case matters", "/Dir/*.PEM", "/Dir/a.PEM", "/dir/a.PEM /Dir/a.pem"},
	{"relative with slash: from the working directory", "src/*.key", "src/a.key /home/u/w/src/a.key ./src/a.key", "/src/a.key /home/u/src/a.key /home/u/w/x/src/a.key"},
	{"relative and up", "../x/**", "/home/u/x /home/u/x/y ../x", "/home/u/w/x /home/x"},
	{"relative with ./", "./x", "x /home/u/w/x/y", "/x/x /home/u/x"},
	{"a slash at its end makes it a path", "x/", "x x/y", "/home/u/x y/x"},
	{". is the working directory", ".", ". x /home/u/w", "/home/u ../v"},
	{".. is the one above", "..", ".. /home/u/x .", "/home /home/v"},
	{"? is one character", "/a?c", "/abc /aéc /a.c", "/ac /abbc /a/c"},
	{"x*/** covers what x* does", "/d*/**", "/d /dd /d/x /dd/x/y", "/x /e/d"},
	{"* is within a segment", "/a/*/c", "/a/b/c /a/.b/c", "/a/c /a/b/b/c"},
	{"* may be nothing", "/a*", "/a /ab", "/b /a/b"},
	{"** crosses segments, also none", "/a/**/c", "/a/c /a/b/c /a/b/b/c", "/a/cc /ac /c"},
	{"** in front: anywhere", "**/secrets/**", "/secrets /x/secrets /x/secrets/y secrets", "/x/secrets2 /x/asecrets"},
	{"** twice", "**/aaa/**/bbb", "/aaa/bbb /x/aaa/y/bbb /aaa/y/z/bbb", "/aaabbb /bbb/aaa /aaa"},
	{"** alone", "**", "/ /x .env", ""},
	{"* alone: any last segment", "*", "/x .env", "/"},
	{"/** is everything", "/**", "/ /x/y", ""},
	{"/ is everything", "/", "/ /x/y", ""},
	{"** within a segment is *", "/a/x**y", "/a/xy /a/xzy", "/a/x/y"},
	{"*** is no **", "/a/***/c", "/a/b/c", "/a/c /a/b/b/c"},
	{"a class", "/[a-c]x", "/ax /cx", "/dx /x /aax"},
	{"a class of others", "/[!a-c]x", "/dx /.x", "/ax /x"},
	{"a class of others with ^", "/[^a]x", "/dx", "/ax"},
	{"a class never matches a slash", "/a[!b]c", "/axc", "/a/c /abc"},
	{"nor does a range", "/a[+-9]c", "/a.c /a0c", "/a/c"},
	{"a ] in a class", "/[]a]", "/] /a", "/b"},
	{"a - in a class", "/[a-]", "/a /-", "/b"},
	{"a ! in a class", "/[a!]", "/a /!", "/b"},
	{`a \ in a class`, `/[\]\\a]`, `/] /\ /a`, "/b"},
	{"braces", "/{a,b}/c", "/a/c /b/c /a/c/d", "/c/c /{a,b}/c"},
	{"braces with a slash in them", "/{a/b,c}/*.x", "/a/b/y.x /c/y.x", "/b/y.x /a/y.x"},
	{"braces in braces", "/x{a,{b,c}d}", "/xa /xbd /xcd", "/xb /xad"},
	{"braces with nothing", "/x{,y}", "/x /xy", "/xz"},
	{"braces before ~", "{~,/r}/k", "/home/u/k /r/k", "/home/u/w/k"},
	{"braces before the anchor", "{a/b,c}", "/home/u/w/a/b /x/c", "/x/a/b"},
	{`\ takes a wildcard as it is`, `/a/\*`, "/a/*  /a/*/x", "/a/b"},
	{`\ takes a brace as it is`, `/\{a,b\}`, "/{a,b}", "/a /b"},
	{"a regex is searched in the path", `/\.env$/`, "/x/.env /.env a.env", "/.env/x /.envs"},
	{"a regex of what may be missing", `/k(xyz)*b/`, "/kb /kxyzb", "/kx"},
	{"a regex that does not look at case", `/(?i)SECRET/`, "/a/secret /sEcReT", "/sec"},
	{"a regex sees the folded path", `/^\/a\/b$/`, "/a/b /a//b /a/x/../b", "/a/b/c"},
	{"a regex sees the absolute path", `/^\/home\/u\/w\/k/`, "k k2 ./k", "/k"},
	{"what looks like a directory is a regex", `/etc/`, "/etc /x/etcetera", "/et"},
	{"the pattern is folded", "/a/./b/../c//d", "/a/c/d /a/c/d/e", "/a/b/c/d"},
	{"the pattern stays below the root", "/../../a", "/a", "/x/a"},
	{"the path is folded", "/a/b", "/a//b /a/./b /a/c/../b /../a/b", "/a/b/.."},
	{"bytes that are no text", "/a/*", "/a/\xff", "/b/\xff"},
}

func quote(pattern string) string { return fmt.Sprintf("'%s'", strings.ReplaceAll(pattern, "'", "''")) }

func TestSentences(t *testing.T) {
	for _, s := range sentences {
		p := mustLoad(t, "access: {useDefaults: false, deny: ["+quote(s.pattern)+"]}")
		rs := must.Get(p.For(Scope{Home: "/home/u", Cwd: "/home/u/w"}))(t)
		for want, paths := range map[bool]string{true: s.covers, false: s.not} {
			for path := range strings.FieldsSeq(paths) {
				for _, op := range []Op{Read, Write, Edit, Bash} {
					if v, err := rs.Check(path, op); err != nil || v.Denied() != want {
						t.Errorf("%s: %s on %s: denied is %v, %v, want %v", s.says, s.pattern, path, v.Denied(), err, want)
					}
				}
				if got := refMatch(s.pattern, "/home/u", "/home/u/w", Fold("/home/u", "/home/u/w", path)); got != want {
					t.Errorf("%s: the reference says %v of %s on %s", s.says, got, s.pattern, path)
				}
			}
		}
	}
}

const orderText = `
access:
  mode: MODE
  useDefaults: DEFAULTS
  rules:
    - {allow: /g/a}
    - {deny: /g}
    - {deny: /one, ops: [read]}
    - {allow: /one}
  deny: [/gs, /both, /x]
agents:
  main:
    access:
      rules:
        - {deny: /x/y}
        - {allow: /x}
        - {allow: /g/open, ops: [read]}
        - {allow: /gs/open}
        - {allow: ~/.ssh/config}
        - {deny: /mine, ops: [write, edit]}
      deny: [/x/z, /both]
`

// TestOrder: the order of both modes, the operations of a rule, and the contents of a verdict.
func TestOrder(t *testing.T) {
	for question, want := range map[string]string{
		"deny-wins main read /x/y":          "allow allow /x p.yaml:16 agent rules", // an agent's allow comes before its denies
		"deny-wins main read /x/z":          "allow allow /x p.yaml:16 agent rules",
		"deny-wins other read /x/z":         "deny deny /x p.yaml:10 global deny",
		"deny-wins main read /both":         "deny deny /both p.yaml:21 agent deny",
		"deny-wins main read /g/a":          "deny deny /g p.yaml:7 global rules", // a global allow has no force
		"deny-wins main read /g/open":       "allow allow /g/open for read p.yaml:17 agent rules",
		"deny-wins main write /g/open":      "deny deny /g p.yaml:7 global rules",
		"deny-wins other read /g/open":      "deny deny /g p.yaml:7 global rules",
		"deny-wins main bash /gs/open/f":    "allow allow /gs/open p.yaml:18 agent rules",
		"deny-wins main bash /gs/f":         "deny deny /gs p.yaml:10 global deny",
		"deny-wins main read /one":          "deny deny /one for read p.yaml:8 global rules",
		"deny-wins main write /one":         "allow    none",
		"deny-wins main write /mine":        "deny deny /mine for write, edit p.yaml:20 agent rules",
		"deny-wins main edit /mine":         "deny deny /mine for write, edit p.yaml:20 agent rules",
		"deny-wins main read /mine":         "allow    none",
		"deny-wins main bash /mine":         "allow    none",
		"deny-wins main read ~/.ssh/id":     "deny deny ~/.ssh/** built in defaults",
		"deny-wins main read ~/.ssh/config": "allow allow ~/.ssh/config p.yaml:19 agent rules",
		"deny-wins main bash ~/.gnupg":      "deny deny ~/.gnupg/** built in defaults",
		"deny-wins main write /p/.env":      "deny deny **/.env built in defaults",
		"deny-wins main edit /p/secrets":    "deny deny **/secrets/** built in defaults",
		"deny-wins main read /p":            "allow    none",
		"deny-wins-off main read ~/.ssh/id": "allow    none",
		"deny-wins-off main read /p/.env":   "allow    none",
		"deny-wins-off main read /gs":       "deny deny /gs p.yaml:10 global deny",

		"first-match main read /x/y":          "deny deny /x/y p.yaml:15 agent rules",
		"first-match main read /x/z":          "allow allow /x p.yaml:16 agent rules",
		"first-match main read /both":         "deny deny /both p.yaml:21 agent deny", // rules, then shorthand
		"first-match main read /g/a":          "allow allow /g/a p.yaml:6 global rules",
		"first-match main read /g/b":          "deny deny /g p.yaml:7 global rules",
		"first-match main write /g/open":      "deny deny /g p.yaml:7 global rules",
		"first-match main read /one":          "deny deny /one for read p.yaml:8 global rules",
		"first-match main write /one":         "allow allow /one p.yaml:9 global rules",
		"first-match other read /x":           "deny deny /x p.yaml:10 global deny",
		"first-match main read ~/.ssh/id":     "deny deny ~/.ssh/** built in defaults", // last
		"first-match main read ~/.ssh/config": "allow allow ~/.ssh/config p.yaml:19 agent rules",
		"first-match main read /g/a/.env":     "allow allow /g/a p.yaml:6 global rules",
		"first-match main read /p":            "allow    none",
		"first-match-off main read /p/.env":   "allow    none",
	} {
		f := strings.Fields(question)
		mode, off := strings.CutSuffix(f[0], "-off")
		p := mustLoad(t, strings.NewReplacer("MODE", mode, "DEFAULTS", fmt.Sprint(!off)).Replace(orderText))
		rs := must.Get(p.For(Scope{Agent: f[1], Home: "/home/u"}))(t)
		op := must.Get(ParseOp(f[2]))(t)
		v, err := rs.Check(f[3], op)
		got := fmt.Sprintf("%s    %s", v.Effect, v.Layer)
		if v.Rule != nil {
			got = fmt.Sprintf("%s %s %s %s", v.Effect, v.Rule, v.Rule.Place, v.Layer)
		}
		expect.True(t, err == nil && got == want && v.Name == Fold("/home/u", "/home/u", f[3]),
			"%s\n got %s (%s, %v)\nwant %s", question, got, v.Name, err, want)
	}
}

// Missing ops means all of them, as * does.
func TestMissingOps(t *testing.T) {
	for _, ops := range []string{"", ", ops: ['*']", ", ops: [read, write, edit, bash]", ", ops: [read, '*']"} {
		rs := must.Get(mustLoad(t, "access: {rules: [{deny: /x"+ops+"}]}").For(Scope{Home: "/h"}))(t)
		for _, op := range []Op{Read, Write, Edit, Bash} {
			if v, err := rs.Check("/x", op); err != nil || !v.Denied() {
				t.Errorf("%q, %s: %+v, %v", ops, op, v, err)
			}
		}
	}
}

// Both names are checked, and a deny of either denies.
func TestTwoNames(t *testing.T) {
	links := map[string]string{"/home/u/link": "/real/secret", "/home/u/w/../link": "/real/secret", "/home/u/ok": "/home/u/fine",
		"/real/secret": "/real/secret", "/home/u/a/../b": "/elsewhere/b"}
	resolve := func(p string) string {
		if to, ok := links[p]; ok {
			return to
		}
		return p
	}
	p := mustLoad(t, "access: {useDefaults: false, deny: [/real, ~/link2, /elsewhere]}\nagents: {a: {access: {rules: [{allow: ~/link}]}}, b: {access: {rules: [{allow: /real}]}}}")
	for question, want := range map[string]string{
		"main /home/u/link":      "deny /real/secret", // the folded name is allowed, the real one denied
		"main /home/u/w/../link": "deny /real/secret",
		"main link":              "deny /real/secret",
		"main /home/u/ok":        "allow /home/u/ok",
		"main /home/u/link2":     "deny /home/u/link2",
		"main /home/u/a/../b":    "deny /elsewhere/b", // .. is followed through links before it is folded away
		"a /home/u/link":         "deny /real/secret", // an allow of one name does not allow the other
		"b /home/u/link":         "allow /real/secret",
		"b /home/u/link2":        "deny /home/u/link2",
	} {
		f := strings.Fields(question)
		rs := must.Get(p.For(Scope{Agent: f[0], Home: "/home/u", Resolve: resolve}))(t)
		v, err := rs.Check(f[1], Read)
		if got := fmt.Sprint(v.Effect, " ", v.Name); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", question, got, err, want)
		}
		named := []chat.NamedPath{{Text: Absolute("/home/u", "/home/u", f[1])}}
		if w, _ := rs.CheckNamed(named); w.Effect != v.Effect || w.Rule != nil && w.Name != v.Name {
			t.Errorf("%s in a command: %+v", f[1], w)
		}
	}
}

// A pattern below a home that is reached by a link is about both names of the home. So is a deny
// below any link, but not an allow: the chat may have made the link.
func TestPatternsBehindLinks(t *testing.T) {
	resolve := func(p string) string {
		p = strings.Replace(p, "/home", "/srv/homes", 1)
		return strings.Replace(p, "/srv/homes/u/led", "/srv/homes/u/.ssh", 1)
	}
	p := mustLoad(t, "access: {useDefaults: false, deny: [~/.ssh/**, /home/u/keys/**, ~/led/*.x, w/x]}\nagents: {a: {access: {rules: [{allow: ~/led/**}]}}}")
	rs := must.Get(p.For(Scope{Home: "/home/u", Cwd: "/home/u/w", Resolve: resolve}))(t)
	for path, want := range map[string]bool{
		"/srv/homes/u/.ssh/id": true, "/home/u/.ssh/id": true, "/srv/homes/u/keys/k": true, "/srv/homes/u/led/a.x": true, "/home/u/w/w/x": true,
		"/srv/homes/u/w/w/x": true, "/srv/homes/u/x": false, "/srv/homes/u/w/x": false,
	} {
		if v, err := rs.Check(path, Read); err != nil || v.Denied() != want {
			t.Errorf("%s: denied is %v, %v", path, v.Denied(), err)
		}
	}
	rs = must.Get(p.For(Scope{Agent: "a", Home: "/home/u", Resolve: resolve}))(t)
	if v, err := rs.Check("~/led/id", Read); err != nil || !v.Denied() {
		t.Errorf("an allow of a link lets read what it leads to: %+v, %v", v, err)
	}
}

func TestCheckRefuses(t *testing.T) {
	p := mustLoad(t, "")
	rs := must.Get(p.For(Scope{Home: "/h"}))(t)
	for path, op := range map[string]Op{"": Read, "a\x00b": Read, strings.Repeat("x", MaxPath+1): Read, "/x": 0, "/y": All, "/z": Read | Write} {
		if v, err := rs.Check(path, op); !errors.Is(err, chat.ErrInvalid) || !strings.HasPrefix(err.Error(), "cannot ") {
			t.Errorf("%.20q %v: %+v, %v", path, op, v, err)
		}
	}
	for _, s := range []Scope{{}, {Home: "h"}, {Home: "/h", Cwd: "w"}, {Home: "/h\x00"}, {Home: "~"}} {
		expect.Is(t, expect.Err(p.For(s)), chat.ErrInvalid, "%+v", s)
	}
}

// A home or a working directory may have any name.
func TestScopeNamesAreLiteral(t *testing.T) {
	p := mustLoad(t, "access: {useDefaults: false, deny: ['~/*.k', 'w/?']}")
	for _, dir := range []string{"/h[a-z]", "/h*", "/h{a,b}", `/h\x`, "/h/../g", "/é"} {
		rs := must.Get(p.For(Scope{Home: dir, Cwd: dir}))(t)
		for path, want := range map[string]bool{dir + "/a.k": true, "a.k": true, "w/a": true, dir + "/w/a": true, "/hx/a.k": false, "/ha/a.k": false, "/hxy/w/a": false} {
			if v, err := rs.Check(path, Read); err != nil || v.Denied() != want {
				t.Errorf("home %s, %s: denied is %v, %v", dir, path, v.Denied(), err)
			}
		}
	}
}

// TestRulesCanBeEnforced: the rules passed to the enforcers decide as Check does.
func TestRulesCanBeEnforced(t *testing.T) {
	p := mustLoad(t, "access: {useDefaults: false, rules: [{deny: '~/.ssh/**', ops: [read]}, {allow: '/a/{b,c*}'}], deny: ['*.pem', '/\\.key$/', '/d/e/*/f']}")
	rs := must.Get(p.For(Scope{Home: "/home/u"}))(t)
	var got []string
	for _, r := range rs.Rules() {
		for _, m := range r.Matchers {
			got = append(got, fmt.Sprintf("%s %s %s inert=%v %s path=%s glob=%s prefix=%s regex=%v", r.Effect, r.Ops, r.Layer, r.Inert, m.Kind, m.Path, m.Glob, m.Prefix, m.Regex))
		}
	}
	want := `deny read global rules inert=false subtree path=/home/u/.ssh glob= prefix=/home/u/.ssh regex=<nil>
allow * global rules inert=true subtree path=/a/b glob= prefix=/a/b regex=<nil>
allow * global rules inert=true glob path= glob=/a/c* prefix=/a regex=<nil>
deny * global deny inert=false glob path= glob=/**/*.pem prefix=/ regex=<nil>
deny * global deny inert=false regex path= glob= prefix=/ regex=\.key$
deny * global deny inert=false glob path= glob=/d/e/*/f prefix=/d/e regex=<nil>`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

func TestMessage(t *testing.T) {
	for text, want := range map[string]string{"": "Access denied: ~/.ssh/id_rsa blocked by policy", "access: {messages: verbose}": "Access denied: ~/.ssh/id_rsa blocked by policy", "access: {messages: vague}": "Access denied by policy"} {
		expect.Equal(t, mustLoad(t, text).Message("~/.ssh/id_rsa"), want, "%q", text)
	}
}

// TestMessageHasTheHome: a denial names a path below ~ where its rule does, and as it is elsewhere.
func TestMessageHasTheHome(t *testing.T) {
	rs := ruleset(t, "access: {useDefaults: false, deny: [~/.ssh/**, '**/.env', '~x', '~']}", "/home/u", "/home/u")
	for path, want := range map[string]string{
		"/home/u": "~", "/home/u/.ssh/id": "~/.ssh/id", "/home/u/a/.env": "/home/u/a/.env", "/home/u/~x": "/home/u/~x", "/srv/.env": "/srv/.env",
	} {
		v, err := rs.Check(path, Read)
		if got := rs.Message(*v.Rule, v.Name); err != nil || got != "Access denied: "+want+" blocked by policy" {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}
