package shell

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// commands are the paths that are found in each command, with home /home/u and cwd /home/u/w.
var commands = []struct{ says, command, paths string }{
	{"file commands", "cat a b", "/home/u/w/a /home/u/w/b"},
	{"file commands", "less ~/x; head -n 5 y; tail -c 10 z", "/home/u/x /home/u/w/y /home/u/w/z"},
	{"file commands", "rm -rf x && mv a b && cp -r a /t", "/home/u/w/x /home/u/w/a /home/u/w/b /t"},
	{"file commands", "chmod 600 k; chown u:g /k", "/home/u/w/k /k"},
	{"file commands", "/bin/cat k", "/bin/cat /home/u/w/k"},
	{"an expression is no file", "grep -rn foo src; sed -i s/a/b/ k; awk '{print $1}' k", "/home/u/w/src /home/u/w/k"},
	{"an expression of an option is none", "grep -e foo k; sed -e p -e q j; python3 -c pass /x", "/home/u/w/k /home/u/w/j /x"},
	{"a file of expressions is one", "grep -f pats k", "/home/u/w/pats /home/u/w/k"},
	{"after -- there are no options", "rm -- -x", "/home/u/w/-x"},
	{"what looks like a path", "frob /a ~/b ./c ../d e/f g", "/a /home/u/b /home/u/w/c /home/u/d /home/u/w/e/f"},
	{"what looks like a path", "frob http://h/x .", "/home/u/w"},
	{"dotfiles", "frob .env .5 ... -x", "/home/u/w/.env"},
	{"redirects", "frob >a 2>>b <c &>d >|e <>f 3>&1 2>&- >&g", "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/w/d /home/u/w/e /home/u/w/f /home/u/w/g"},
	{"redirects without a command", ">a", "/home/u/w/a"},
	{"redirects of a block", "{ echo; } > a; (echo) > b; for i in 1; do :; done > c", "/home/u/w/a /home/u/w/b /home/u/w/c"},
	{"here-documents are data", "frob <<E\n/etc/passwd\n~/.ssh/id\nE\n", ""},
	{"here-documents run what is in them", "frob <<E\n$(cat a) `cat b`\nE\n", "/home/u/w/a /home/u/w/b"},
	{"here-documents in quotes do not", "frob <<'E'\n$(cat a)\nE\n", ""},
	{"here-strings are data", "frob <<< /etc/passwd; frob <<< \"$(cat a)\"", "/home/u/w/a"},
	{"--opt=/path", "frob --file=/a --out=b/c --n=5 -I/d --x=~/e", "/a /home/u/w/b/c /d /home/u/e"},
	{"dd", "dd if=a of=/b bs=1", "/home/u/w/a /b /home/u/w/1"},
	{"curl", "curl -d @/a -T /b -o/c http://x/y", "/a /b /c"},
	{"tar", "tar czf /a.tgz b; tar -xf c", "/a.tgz /home/u/w/b /home/u/w/c"},
	{"assignments", "A=/a B=c frob", "/a"},
	{"assignments", "A=/a; cat $A ${A}/b \"$A\"/c", "/a /a/b /a/c"},
	{"assignments", "export A=/a; declare -x B=/b; P=/c:/d", "/a /b /c /d"},
	{"assignments of one command", "A=/a frob; cat x$A", "/a /home/u/w/x*"},
	{"lists", "A=(/a b); cat ${A[@]}", "/a /home/u/w/b"},
	{"globs in variables", "A=*.c; cat $A \"$A\"x", "/home/u/w/*.c /home/u/w/*.cx"},
	{"loops", "for f in a /b; do cat $f; done", "/b /home/u/w/a"},
	{"defaults of variables", "cat ${X:-/a}", "/a"},
	{"blanks of a variable split it", "C='cat /a b'; $C", "/a /home/u/w/b"},
	{"blanks in quotes do not", "F='a b'; cat \"$F\" 'c d' e\\ f", "/home/u/w/a b /home/u/w/c d /home/u/w/e f"},
	{"IFS", "cat$IFS/a; cat${IFS}b", "/a /home/u/w/b"},
	{"quotes", `cat "a" 'b' c"d"'e'f $'\x67' "~/h" \i`, "/home/u/w/a /home/u/w/b /home/u/w/cdef /home/u/w/g /home/u/w/~/h /home/u/w/i"},
	{"quotes", `"c"at 'a'; c\at b; $'cat' c`, "/home/u/w/a /home/u/w/b /home/u/w/c"},
	{"quotes", `cat $'%s\x67' "x"~/y`, "/home/u/w/%sg /home/u/w/x~/y"},
	{"~ and $HOME", `cat ~ ~/a $HOME/b "${HOME}/c" '$HOME/d' $PWD/e ~+/f ~v/g`, "/home/u /home/u/a /home/u/b /home/u/c /home/u/w/$HOME/d /home/u/w/e /home/u/w/f /*/g"},
	{"a home of its own", "HOME=/x; cat $HOME/a", "/x /x/a"},
	{"pipelines", "cat a | sort b | tee c", "/home/u/w/a /home/u/w/b /home/u/w/c"},
	{"each part of a pipeline is a shell", "cd /x | cat a; cat b", "/x /home/u/w/a /home/u/w/b"},
	{"lists of commands", "cat a; cat b & cat c && cat d || cat e\ncat f", "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/w/d /home/u/w/e /home/u/w/f"},
	{"subshells", "(cd /x; cat a); cat b", "/x /x/a /home/u/w/b"},
	{"blocks", "{ cat a; }; if cat b; then cat c; elif cat d; then :; else cat e; fi", "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/w/d /home/u/w/e"},
	{"while, until, case, functions", "while cat a; do cat b; done; until cat c; do :; done; case x in x) cat d;; esac; f() { cat e; }; f", "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/w/d /home/u/w/e"},
	{"negation and time", "! cat a; time cat b", "/home/u/w/a /home/u/w/b"},
	{"command substitution", "frob $(cat a) `cat b` \"$(cat c)\"", "/home/u/w/a /home/u/w/b /home/u/w/c"},
	{"command substitution", "cat $(pwd)/a; X=$(cat b)", "/home/u/w/a /home/u/w/b"},
	{"arithmetic", "((x = $(cat a))); echo $((1 + $(cat b)))", "/home/u/w/a /home/u/w/b"},
	{"process substitution", "diff <(cat a) >(tee b)", "/home/u/w/a /home/u/w/b"},
	{"cd", "cd ../x && cat a; cd /y; cat b; cd; cat c; cd $D; cat d", "/home/u/x /home/u/x/a /y /y/b /home/u/c /home/u/d"},
	{"braces", "cat {a,b}/{c,d} x{,y}", "/home/u/w/a/c /home/u/w/a/d /home/u/w/b/c /home/u/w/b/d /home/u/w/x /home/u/w/xy"},
	{"globs", "cat *.c ~/.s?h/[ab]*", "/home/u/w/*.c /home/u/.s?h/[ab]*"},
	{"globs in quotes are names", "cat '*' \"?\" \\*", "/home/u/w/* /home/u/w/?"},
	{"unknown parts", "cat /a/$X/b $Y", "/a/*/b"},
	{"scripts in scripts", `sh -c 'cat a'; bash -lc "cat b; bash -c 'cat c'"; eval "cat d" e; bash f`, "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/w/d /home/u/w/e /home/u/w/f"},
	{"source", ". a; source b", "/home/u/w/a /home/u/w/b"},
	{"wrappers", "sudo -u x cat a; env A=/b cat c; timeout -s 9 5 cat d; nice -n 5 cat e; xargs -n 1 cat f; exec cat g; command cat h", "/home/u/w/a /b /home/u/w/c /home/u/w/d /home/u/w/e /home/u/w/f /home/u/w/g /home/u/w/h"},
	{"find", `find a /b -name 'x*' -newer /c -exec cat d {} \;`, "/home/u/w/a /b /c /home/u/w/d"},
	{"tests", "test -f a; [ -e b ] && [ \"$x\" = y ]; [[ -r c && ! -d ~/d ]]", "/home/u/w/a /home/u/w/b /home/u/w/c /home/u/d"},
	{"the path of a program", "./run.sh ~/a", "/home/u/w/run.sh /home/u/a"},
	{"file URLs", "curl file:///a", "/a"},
	{"comments", "echo # /a\n", ""},
	{"nothing", "", ""},
}

func TestCommands(t *testing.T) {
	rs := ruleset(t, "", "/home/u", "/home/u/w")
	for _, c := range commands {
		v, err := CheckCommand(rs, c.command)
		want := strings.Fields(c.paths)
		if strings.Contains(c.says, "blanks in quotes") {
			want = []string{"/home/u/w/a b", "/home/u/w/c d", "/home/u/w/e f"}
		}
		slices.Sort(want)
		got := slices.Sorted(slices.Values(v.Paths))
		expect.True(t, err == nil && slices.Equal(got, want),
			"%s: %s\n got %q, %v\nwant %q", c.says, c.command, got, err, want)
	}
}

// TestNames: which words of a command are files, and which only look so.
func TestNames(t *testing.T) {
	text := must.Get(os.ReadFile("testdata/names.txt"))(t)
	rs, lines := ruleset(t, "", "/home/u", "/home/u/w"), 0
	for line := range strings.Lines(string(text)) {
		command, paths, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok {
			continue
		}
		lines++
		v, err := CheckCommand(rs, command)
		got, want := slices.Sorted(slices.Values(v.Paths)), strings.Fields(paths)
		slices.Sort(want)
		expect.True(t, err == nil && slices.Equal(got, want),
			"%s\n got %q, %v\nwant %q", command, got, err, want)
	}
	expect.True(t, lines >= 100, "only %d lines", lines)
}

func ruleset(t testing.TB, text, home, cwd string) *filerules.Ruleset {
	t.Helper()
	p, err := rulefile.Load("p.yaml", []byte(text))
	must.Do(t, err)
	rs, err := p.For(filerules.Scope{Home: home, Cwd: cwd})
	must.Do(t, err)
	return rs
}

// A command is denied if one of its paths is; only what is denied for bash counts.
func TestCheckCommand(t *testing.T) {
	rs := ruleset(t, "access:\n  rules:\n  - {deny: /r, ops: [read, write, edit]}\n  - {deny: /b, ops: [bash]}\n  - {deny: '*.pem'}\n  - {deny: '/\\.key$/'}\nagents: {main: {access: {rules: [{allow: /b/open}]}}}", "/home/u", "/home/u/w")
	for command, want := range map[string]string{
		"cat /r":                            "allow",
		"cat /r /b/x":                       "deny /b/x",
		"cat /b/open/x":                     "allow",
		"cat /b/open/x /b/x":                "deny /b/x",
		"cp .env{,.bak}":                    "deny /home/u/w/.env",
		"cat .e''nv":                        "deny /home/u/w/.env",
		"sed -ne p .env":                    "deny /home/u/w/.env",
		"while read l; do :; done<.env":     "deny /home/u/w/.env",
		"find . -name .env -delete":         "deny /home/u/w/.env",
		"find . -iname .env -exec cat {} +": "deny /home/u/w/.env",
		"find . -name .env":                 "allow",
		"find . -not -name .env -print":     "allow",
		"echo .env >> .gitignore":           "allow",
		"printf '%s\\n' .env >>.gitignore":  "allow",
		"echo x > .env":                     "deny /home/u/w/.env",
		"echo cat ~/.ssh/id > run.sh":       "deny /home/u/.ssh/id",
		"git log --oneline -- .env":         "allow",
		"git diff -- .env":                  "allow",
		"git -C sub status -- .env":         "allow",
		"git rm --cached .env":              "allow",
		"git check-ignore -v .env":          "allow",
		"git diff --no-index .env x":        "deny /home/u/w/.env",
		"git add .env":                      "deny /home/u/w/.env",
		"grep -rn key --exclude=.env .":     "allow",
		"rsync -a --exclude .env a b":       "allow",
		"tar --exclude=.env -cf a.tar .":    "allow",
		"grep -f .env x":                    "deny /home/u/w/.env",
		"echo .env | xargs cat":             "deny /home/u/w/.env",
		"git commit -m 'see .env, ~/.ssh'":  "allow",
		"cat ~/.ssh/id":                     "deny /home/u/.ssh/id",
		"cat ~/.s*/id":                      "deny /home/u/.s*/id",
		"cat ~/.ssh/*":                      "deny /home/u/.ssh/*",
		"cat ~/.[s]sh/id":                   "deny /home/u/.[s]sh/id",
		"cat ~/*/id":                        "allow", // * matches no leading dot
		"cat ~/?ssh/id":                     "allow",
		"cat x/sec*/y":                      "deny /home/u/w/x/sec*/y",
		"cat *.p*":                          "deny /home/u/w/*.p*",
		"cat a*":                            "allow", // two globs are not compared
		"cat *m":                            "deny /home/u/w/*m",
		"cat [a-c].pem":                     "deny /home/u/w/[a-c].pem",
		"cat *.c":                           "allow",
		"cat x.key":                         "deny /home/u/w/x.key",
		"cat *.key":                         "deny /home/u/w/*.key",
		"ls *":                              "allow", // names nothing
		"cat '*.pem'":                       "deny /home/u/w/*.pem",
		"cat /b/open/*":                     "allow",
		"cat /b/o*":                         "deny /b/o*",
		"cat /b/$X":                         "deny /b/*",
		"cat $X/.env":                       "deny /home/u/w/*/.env",
		"cat $X":                            "allow",
		"cat [":                             "allow",
		"echo $(< .env)":                    "deny /home/u/w/.env",
		"bash -c 'cat \"$0\"' ~/.ssh/x":     "deny /home/u/.ssh/x",
		"cat a\n((":                         "error",
		"cat .env\n((":                      "deny /home/u/w/.env",
		"cat .env ((":                       "error",
		"sh -c 'cat (('":                    "error",
		"cat \x00":                          "error",
	} {
		v, err := CheckCommand(rs, command)
		got := fmt.Sprint(v.Effect)
		if v.Denied() {
			got += " " + v.Name
		}
		if err != nil {
			got = "error"
			if !errors.Is(err, chat.ErrInvalid) || !strings.HasPrefix(err.Error(), "cannot ") || v.Effect != "" {
				t.Errorf("%s: %+v, %v", command, v, err)
			}
		}
		expect.True(t, got == want, "%q: %s, %v, want %s", command, got, err, want)
	}
}

// TestStartedIn: a command's directory is checked, and is where its paths begin.
func TestStartedIn(t *testing.T) {
	rs := ruleset(t, "access: {useDefaults: false, deny: ['~/keys/**', w/x]}", "/home/u", "/home/u")
	for dir, want := range map[string]string{"/home/u": "", "/home/u/keys": "/home/u/keys", "/home/u/keys/d": "/home/u/keys/d", "/home/u/w": "/home/u/w/x", "/srv": ""} {
		named, err := Named("/home/u", dir, "cat x")
		v, _ := rs.CheckNamed(append([]chat.NamedPath{{Text: dir}}, named...))
		named, errArgv := NamedByArgv("/home/u", dir, []string{"cat", "x"})
		w, _ := rs.CheckNamed(append([]chat.NamedPath{{Text: dir}}, named...))
		if err != nil || errArgv != nil || v.Denied() != (want != "") || w.Denied() != v.Denied() || want != "" && (v.Name != want || w.Name != want) {
			t.Errorf("%s: %+v, %+v, %v, %v, want %q", dir, v, w, err, errArgv, want)
		}
	}
	v, err := CheckArgv(rs, []string{"cat", "~/keys/k"})
	expect.True(t, err == nil && !v.Denied(), "a ~ that nobody expands: %+v, %v", v, err)
}

// TestLinks: a path of a command is checked by both of its names, and .. is followed through
// links before it is folded away.
func TestLinks(t *testing.T) {
	p, err := rulefile.Load("p.yaml", []byte("access: {useDefaults: false, deny: [/real]}"))
	must.Do(t, err)
	leads := map[string]string{"/home/u/link": "/real/x", "/home/u/a/../b": "/real/b"}
	resolve := func(p string) string { return cmp.Or(leads[p], filepath.Clean(p)) }
	rs, err := p.For(filerules.Scope{Home: "/home/u", Resolve: resolve})
	must.Do(t, err)
	for command, want := range map[string]string{
		"cat link": "/real/x", "cat a/../b": "/real/b", "cat ~/link": "/real/x", "cat b": "",
	} {
		v, err := CheckCommand(rs, command)
		if err != nil || v.Denied() != (want != "") || v.Denied() && v.Name != want {
			t.Errorf("%s: %+v, %v, want a denial of %q", command, v, err, want)
		}
	}
}

// A command cannot make the check work without end, and what it could not look at
// is no allow.
func TestCommandBounds(t *testing.T) {
	rs := ruleset(t, "", "/home/u", "/home/u/w")
	const n = 5000
	for command, want := range map[string]string{
		strings.Repeat("(", n): "parse", strings.Repeat("$(", n): "parse", strings.Repeat("{ ", n): "parse", strings.Repeat("((", n): "of ( { `",
		strings.Repeat("if a; then ", n): "parse", "[[ " + strings.Repeat("( ", n): "parse", "echo $((" + strings.Repeat("(", n): "parse",
		"echo ${a" + strings.Repeat(":-${a", n): "parse", "cat " + strings.Repeat("\"$(", n): "parse",
		"cat " + strings.Repeat("{a,b}", 200): "words that stand for at most", "cat " + strings.Repeat("{a,b}", n): "braces in a word",
		"cat " + strings.Repeat("{a,", n): "braces in a word", "cat " + strings.Repeat("{a,b}", 11): "words that stand for at most",
		"cat {1..1000000000}": "", "x=a; " + strings.Repeat("x=$x$x;", n) + "cat $x": "",
		"for i in " + strings.Repeat("a ", n) + "; do :; done": "words that stand for at most",
		"cat " + strings.Repeat("a ", n):                       "", strings.Repeat("a | ", n) + "a": "", strings.Repeat("a && ", n) + "a": "", strings.Repeat("x=$(cat a);", n): "",
		"cat $(seq 9) " + paths(maxFound+1): "want at most 10000 paths", "eval " + strings.Repeat("eval ", n) + "a": "scripts within each other",
		strings.Repeat("x", maxCommand+1): "want at most 131072 bytes", "cat '" + strings.Repeat("x", filerules.MaxPath+1) + "'": "of at most 65536 bytes",
		"a='" + strings.Repeat("x", 60_000) + "'; " + strings.Repeat(`eval "$a";`, 100): "scripts of at most 1048576 bytes",
	} {
		v, err := CheckCommand(rs, command)
		if want == "" && (err != nil || v.Denied()) || want != "" && (!errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want) || v.Effect != "") {
			t.Errorf("%.20q: %s, %v, want %s", command, v.Effect, err, want)
		}
	}
}

func paths(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "/%d ", i)
	}
	return b.String()
}

// FuzzCommand wants paths that can be checked, and that what one path of a command
// denies denies the command.
func FuzzCommand(f *testing.F) {
	for _, c := range commands {
		f.Add(c.command)
	}
	f.Add("000000000&0\xa0") // text behind an error: the parser's iterator must not be left early
	for _, s := range []string{
		`/[[0`, `sh -c 0 ""`, `sh -"0"`, `A=.*0;bat $A "$A"0`, `>&A>&A>&>&`, `A=(0 ${A[0]a`,
	} {
		f.Add(s)
	}
	rs := ruleset(f, "access: {deny: ['*.pem', '/\\.key$/', /b]}", "/home/u", "/home/u/w")
	f.Fuzz(func(t *testing.T, command string) {
		v, err := CheckCommand(rs, command)
		if err != nil && (!errors.Is(err, chat.ErrInvalid) || v.Denied()) {
			t.Fatalf("%q: %+v, %v", command, v, err)
		}
		denied := v.Denied()
		for _, p := range v.Paths {
			expect.True(t, p == filepath.Clean(p) && filepath.IsAbs(p),
				"%q: path %q is not folded", command, p)
			if w, err := rs.Check(p, filerules.Bash); err != nil && len(p) <= filerules.MaxPath || err == nil && w.Denied() && !denied && !strings.ContainsAny(p, "*?[") {
				t.Errorf("%q is allowed and has %q, which is denied: %v", command, p, err)
			}
		}
		if again, err2 := CheckCommand(rs, command); again.Effect != v.Effect || !slices.Equal(again.Paths, v.Paths) || (err == nil) != (err2 == nil) {
			t.Errorf("%q: %+v, then %+v", command, v, again)
		}
	})
}
