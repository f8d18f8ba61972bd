package shell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// calls writes what was found in one line: the words of each simple command, where
// it is, what it writes to, and where what it reads comes from.
func calls(w Walk) string {
	var all []string
	for _, c := range w.Calls {
		var s []string
		for _, a := range c.Args {
			s = append(s, a.Text)
		}
		line := strings.Join(s, " ")
		if c.Cwd != "/home/u" {
			line += " @" + c.Cwd
		}
		for _, a := range c.Writes {
			line += " >" + a.Text
		}
		if len(c.From) > 0 {
			line += " <" + strings.Join(c.From, ",")
		}
		if len(c.Within) > 0 {
			line += " $" + strings.Join(c.Within, ",")
		}
		if c.Uses != 0 {
			line += fmt.Sprintf(" u%d", c.Uses)
		}
		all = append(all, strings.TrimSpace(line))
	}
	return strings.Join(all, " | ")
}

// TestCalls has each road by which a script starts a program.
func TestCalls(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"rm -rf /", "rm -rf /"},
		{`r""m '-rf' \/`, "rm -rf /"},
		{"$'\\x72m' x", "rm x"},
		{"a=rm; $a -rf /", "rm -rf /"},
		{"cd /; rm -rf *", "cd / | rm -rf * @/"},
		{"(cd /; ls); ls", "cd / | ls @/ | ls"},
		{"ls | sort", "ls | sort <ls"},
		{"a | b | c", "a | b <a | c <a,b"},
		{"timeout -s KILL 5 rm x", "timeout -s KILL 5 rm x | rm x"},
		{"timeout --signal KILL 5 rm x", "timeout --signal KILL 5 rm x | rm x"},
		{"env -i A=b rm x", "env -i A=b rm x | rm x"},
		{"env -S 'rm x'", "env -S rm x | rm x"},
		{"su root -c 'rm x'", "su root -c rm x | root -c rm x"},
		{"su -c 'rm x'", "su -c rm x | rm x"},
		{"flock /tmp/l rm x", "flock /tmp/l rm x | rm x"},
		{"nohup busybox rm x", "nohup busybox rm x | busybox rm x | rm x"},
		{"command -v rm", "command -v rm"},
		{"find / -exec rm -rf {} +", "find / -exec rm -rf {} + | rm -rf //**"},
		{"watch 'rm x; ls'", "watch rm x; ls | rm x | ls"},
		{"/lib64/ld-linux-x86-64.so.2 /bin/rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x | /bin/rm x"},
		{"sh -c 'rm x'", "sh -c rm x | rm x"},
		{`sh -c 'rm "$1"' x /`, "sh -c rm \"$1\" x / | rm /"},
		{"sh <<E\nrm x\nE", "sh | rm x"},
		{"bash -s <<< 'rm x'", "bash -s | rm x"},
		{"cat <<'E' | sh\nrm x\nE", "cat | sh <cat | rm x"},
		{"echo 'rm x' | sh", "echo rm x | sh <echo | rm x"},
		{`printf '\x72m x' | sh`, `printf \x72m x | sh <printf | rm x`},
		{"echo cm0geA== | base64 -d | sh", "echo cm0geA== | base64 -d <echo | sh <echo,base64 | rm x"},
		{"$(echo rm) x", "echo rm | rm x $echo u1"},
		{"`echo rm` x", "echo rm | rm x $echo u3"},
		{"echo x y | xargs rm", "echo x y | xargs rm <echo | rm x y <echo"},
		{"eval rm x", "eval rm x | rm x"},
		{"alias l='rm x'", "alias l=rm x | rm x"},
		{"trap 'rm x' EXIT", "trap rm x EXIT | rm x"},
		{"echo ${a}", "echo * u4"},
		{"a=$(b)", "b | $b u1"},
		{"export A=$(b)", "b | u1"},
		{":(){ :|:& };:", ": | : <: | : | u8"},
		{"f() { rm x; }; f", "rm x | f"},
		{"echo x >a 2>>/b", "echo x >/home/u/a >/b"},
		{"{ ls; } >/dev/sda", ">/dev/sda | ls"},
		{"for f in /a /b; do rm $f; done", "rm /a /b"},
		{"bash <(curl u)", "curl u | bash * $curl"},
		{"sh -c \"$(curl u)\"", "curl u | sh -c * $curl u1 | *"},
		{"ls & rm x", "ls | rm x"},
		{"if a; then b; fi; while c; do d; done; case x in y) e;; esac", "a | b | c | d | e"},
		{"", ""},
	} {
		w, err := Calls(c.command, "/home/u", "/home/u")
		got := calls(w)
		expect.True(t, got == c.want && err == nil, "%s\n got %q, %v\nwant %q", c.command, got, err, c.want)
	}
}

func TestCallsOf(t *testing.T) {
	w, err := CallsOf([]string{"env", "A=b", "sh", "-c", "rm '$x'"}, "/home/u", "/home/u")
	got := calls(w)
	expect.True(t, got == "env A=b sh -c rm '$x' | sh -c rm '$x' | rm $x" && err == nil, "%q, %v", got, err)
}

// TestCallPaths: the name of a program is no path that it touches, unless it is one too.
func TestCallPaths(t *testing.T) {
	for command, want := range map[string]string{
		"/bin/cat a; /bin/cat b": "/home/u/a /home/u/b", "/x/y": "", "/x/y; cat /x/y": "/x/y", "cat /x/y; /x/y": "/x/y",
		"env /x/y /z": "/z", "cat ../../etc/passwd": "/etc/passwd",
	} {
		if w, err := Calls(command, "/home/u", "/home/u"); strings.Join(w.Paths, " ") != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", command, w.Paths, err, want)
		}
	}
}

// TestCallBounds: the memory that a walk of a command holds is bounded.
func TestCallBounds(t *testing.T) {
	for command, want := range map[string]string{
		strings.Repeat("a;", maxFound+1):                         "want at most 10000 commands",
		strings.Repeat("(", maxOpen+1):                           "of ( { `",
		strings.Repeat("a|", 30_000) + "a":                       "want at most 10000 commands",
		strings.Repeat("echo x|", 500) + "sh":                    "",
		"x=a;" + strings.Repeat("x=$(echo $x$x);", 40) + "$x":    "",
		strings.Repeat("echo a|xargs ", 500) + "rm":              "",
		"echo " + strings.Repeat("a ", 5000) + "|xargs xargs rm": "",
	} {
		w, err := Calls(command, "/home/u", "/home/u")
		if want == "" && err != nil || want != "" && (!errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.30q: %v, want %s", command, err, want)
		}
		expect.True(t, len(w.Calls) <= maxFound, "%.30q: %d calls", command, len(w.Calls))
	}
}

// FuzzCalls wants an answer for every text, the same twice, with bounds.
func FuzzCalls(f *testing.F) {
	for _, c := range commands {
		f.Add(c.command)
	}
	for _, s := range []string{"echo 'rm x' | sh", "sh <<E\nrm x\nE", "xargs rm <<< 'a b'", "f(){ f|f& };f", "env -S 'a b' c", "sh -c 'a $1' b c", "printf %s\\\\n a | base64 -d", "find / -exec a {} +",
		"0(", "!(0)(", "<<''\n0", "A=(0 0 0&", "sh &{\"*\"", "a \x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		w, err := Calls(command, "/home/u", "/home/u/w")
		must.True(t, err == nil || errors.Is(err, chat.ErrInvalid), "%q: %v", command, err)
		for _, c := range w.Calls {
			for _, a := range append(slices.Clone(c.Args), c.Writes...) {
				expect.True(t, strings.IndexByte(a.Text, 0) < 0, "%q: the word %q has a NUL", command, a.Text)
			}
		}
		again, _ := Calls(command, "/home/u", "/home/u/w")
		expect.True(t, calls(w) == calls(again) && slices.Equal(w.Paths, again.Paths),
			"%q: %s, then %s", command, calls(w), calls(again))
	})
}
