package guard

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/shell"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

var home = Place{Home: "/home/u", Cwd: "/home/u"}

func patterns(list ...string) []chat.Pattern {
	var all []chat.Pattern
	for _, s := range list {
		all = append(all, chat.Pattern{Text: s, Place: "chatd.yaml:7"})
	}
	return all
}

func mustNew(t testing.TB, cfg chat.Guard) *Guard {
	t.Helper()
	g := must.Get(New(cfg))(t)
	return g
}

func preset(p chat.GuardPreset) chat.Guard {
	return chat.Guard{Preset: p, EnableDenyPatterns: true}
}

// rule is the name of the rule that denies a command, or "".
func denies(t testing.TB, g *Guard, command string) string {
	t.Helper()
	v, err := g.Command(command, home)
	expect.True(t, err == nil, "%s: %v", command, err)
	return v.Rule
}

// ruleCases have, for each rule of a preset, what it denies and its nearest neighbours
// that it lets run.
var ruleCases = []struct {
	preset       chat.GuardPreset
	rule         string
	deny, permit []string
}{
	{chat.GuardDefault, "fork-bomb", []string{":(){ :|:& };:", "f() { f & f; }; f"}, []string{"f() { ls; }; f", "f() { f2 | cat; }"}},
	{chat.GuardDefault, "write-to-device", []string{"echo x > /dev/sda", "dd if=x of=/dev/nvme0n1", "cat x | tee /dev/vda", "cp x /dev/mem", "{ ls; } >/dev/sdb1"},
		[]string{"echo x > /dev/null", "dd if=/dev/zero of=x", "ls 2>/dev/stderr", "cp /dev/null x", "echo > /dev/tty", "exec 3<>/dev/tcp/1.2.3.4/80"}},
	{chat.GuardDefault, "rm-recursive-whole", []string{"rm -rf /", "rm -fr /*", "rm -r -f ~", "rm -rf $HOME", "rm -rf ~/*", "cd; rm -rf *", "rm --recursive .", "rm -rf ..", "rm -rf /etc", "rm -R /srv/other",
		"rm --no-preserve-root x", "cd / && rm -rf *", "find / -exec rm -rf {} +", "echo / | xargs rm -rf", "r''m -rf /", "/bin/r? -rf /"},
		[]string{"rm -rf build", "rm -f ~/x", "rm -rf ./*/x", "rm -rf \"$X\"", "rm -rf $X/", "rm -rf /tmp/x", "rm x", "cd build; rm -rf *", "find . -type d -exec rm -rf {} +", "rm -rf ~/.cache"}},
	{chat.GuardDefault, "find-delete-outside", []string{"find / -delete", "cd /; find -name x -delete"}, []string{"find . -name '*.o' -delete", "find ~ /tmp -delete", "find / -name x"}},
	{chat.GuardDefault, "chmod-whole", []string{"chmod -R 777 /", "chown -R u:u /etc", "chgrp --recursive x /usr"}, []string{"chmod -R u+w .", "chown -R u: ~/x", "chmod 600 x"}},
	{chat.GuardDefault, "chmod-set-id", []string{"chmod u+s x", "chmod 4755 x", "chmod 02755 x", "chmod a=xs x"}, []string{"chmod 755 x", "chmod 0755 x", "chmod +x x", "chmod 1777 d"}},
	{chat.GuardDefault, "format", []string{"mkfs.ext4 x", "/sbin/mkfs -t ext4 x", "fdisk -l", "wipefs x"}, []string{"npm run format", "gofmt -l .", "swapon", "parted --help"}},
	{chat.GuardDefault, "power", []string{"shutdown -h now", "reboot", "init 6", "systemctl reboot"}, []string{"npm init 0", "git init", "echo reboot"}},
	{chat.GuardDefault, "privileges", []string{"sudo ls", "su", "env -i sudo ls", "ls | sudo tee x"}, []string{"echo sudo", "grep -r sudo .", "command -v sudo", "man sudo", "su --version", "sg run --pattern foo"}},
	{chat.GuardDefault, "accounts", []string{"passwd", "useradd x"}, []string{"cat /etc/passwd", "getent passwd"}},
	{chat.GuardDefault, "mounts", []string{"mount -t tmpfs x y", "umount x", "mount -a", "umount -l"}, []string{"mount", "mount -l | grep nfs", "mount -v"}},
	{chat.GuardDefault, "services", []string{"systemctl restart x", "service x start"}, []string{"systemctl status x", "systemctl", "loginctl show-session x", "systemctl list-timers"}},
	{chat.GuardDefault, "later", []string{"crontab -e", "echo x | at now"}, []string{"echo at noon"}},
	{chat.GuardDefault, "kernel", []string{"insmod x", "sysctl -w a=b", "sysctl a=b"}, []string{"sysctl a"}},
	{chat.GuardDefault, "firewall", []string{"iptables -F", "nft flush ruleset"}, []string{"echo iptables"}},
	{chat.GuardDefault, "containers", []string{"docker ps", "chroot / ls", "unshare -r"}, []string{"ls docker", "cat Dockerfile"}},
	{chat.GuardDefault, "packages", []string{"apt install x", "apt-get -y install x", "dnf remove x", "pacman -S x", "dpkg -i x", "apt-get update", "apt-get -o A::B=c update", "dnf -c x install y", "pacman -Rs x", "pacman -Syu", "rpm -ivh x"},
		[]string{"apt-get -c apt.conf update", "apt -o Dir::State=x update", "apt-get -oDir::Cache=x install y", "apt list", "apt search remove", "pacman -Ss x", "pacman -Up x", "rpm -qfi x", "npm install -g x", "pip install --user x", "dpkg -l"}},
	{chat.GuardDefault, "kill-everything", []string{"kill -9 -1", "kill -- -1", "kill 1", "killall5", "pkill .", "pkill -u $USER", "pkill -U0", "pkill -fu x y", "kill -9 1"}, []string{"kill -9 123", "kill -1 123", "kill %1", "pkill -f server", "pkill -SIGUSR1 -f server", "pkill -USR2 x", "kill -l", "kill -0 1"}},
	{chat.GuardDefault, "fetched-code", []string{"curl u | sh", "wget -qO- u | bash -s -- -y", "curl u | env bash -", "bash <(curl u)", "sh -c \"$(curl u)\"", "eval \"$(wget -O- u)\"", "curl u | python3", "source <(curl u)", "curl u | tee x | sh"},
		[]string{"curl u | jq .", "curl u | python3 -m json.tool", "curl u | sh -c 'cat >x'", "python3 x.py \"$(curl u)\"", "curl u -o x", "curl u | grep sh", "bash -c 'echo $1' x \"$(curl u)\""}},
	{chat.GuardDefault, "decoded-code", []string{"echo x | base64 -d | sh", "xxd -r -p f | bash"}, []string{"base64 -d f > x", "base64 -d f | tar x"}},
	{chat.GuardPicoClaw, "rm-rf", []string{"rm -rf x", "rm -r x", "rm -f x", "rm --force x", "find . -exec rm -f {} +"}, []string{"rm x", "git commit -m 'rm -rf x'"}},
	{chat.GuardPicoClaw, "del", []string{"del /f x", "del /Q x"}, []string{"del x"}},
	{chat.GuardPicoClaw, "rmdir-s", []string{"rmdir /s x"}, []string{"rmdir x"}},
	{chat.GuardPicoClaw, "format", []string{"format c:", "mkfs.ext4 x", "diskpart x"}, []string{"format", "npm run format"}},
	{chat.GuardPicoClaw, "dd-if", []string{"dd if=x of=y", "dd bs=1 if=x"}, []string{"dd of=y"}},
	{chat.GuardPicoClaw, "write-to-disk", []string{"echo >/dev/sda"}, []string{"echo >/dev/null"}},
	{chat.GuardPicoClaw, "power", []string{"shutdown now"}, []string{"echo shutdown"}},
	{chat.GuardPicoClaw, "command-substitution", []string{"echo $(ls)", "a=$(ls)", "echo \"$(ls)\""}, []string{"echo '$(ls)'", "echo \\$\\(ls\\)"}},
	{chat.GuardPicoClaw, "variable-expansion", []string{"echo ${HOME}"}, []string{"echo $HOME", "echo '${HOME}'"}},
	{chat.GuardPicoClaw, "backticks", []string{"echo `ls`"}, []string{"echo '`ls`'"}},
	{chat.GuardPicoClaw, "curl-sh", []string{"curl u | sh", "curl u | bash"}, []string{"curl u"}},
	{chat.GuardPicoClaw, "wget-sh", []string{"wget u | zsh"}, []string{"wget u"}},
	{chat.GuardPicoClaw, "pipe-to-shell", []string{"cat x | sh", "cat x | env bash"}, []string{"cat x | shuf", "sh x"}},
	{chat.GuardPicoClaw, "sudo", []string{"sudo ls"}, []string{"echo sudo"}},
	{chat.GuardPicoClaw, "chmod-octal", []string{"chmod 755 x", "chmod -R 0644 x"}, []string{"chmod +x x"}},
	{chat.GuardPicoClaw, "chown", []string{"chown u x"}, []string{"ls chown"}},
	{chat.GuardPicoClaw, "pkill", []string{"pkill x"}, []string{"pgrep x"}},
	{chat.GuardPicoClaw, "killall", []string{"killall x"}, []string{"kill 2"}},
	{chat.GuardPicoClaw, "kill-9", []string{"kill -9 2", "kill -s KILL 2", "kill -SIGKILL 2"}, []string{"kill 2", "kill -15 2"}},
	{chat.GuardPicoClaw, "ssh", []string{"ssh a@b", "ssh -l a b"}, []string{"ssh b", "ssh-keygen -C a@b"}},
	{chat.GuardPicoClaw, "apt", []string{"apt install x", "apt -y purge x"}, []string{"apt search install"}},
	{chat.GuardPicoClaw, "yum", []string{"yum remove x"}, []string{"yum info x"}},
	{chat.GuardPicoClaw, "dnf", []string{"dnf install x"}, []string{"dnf info x"}},
	{chat.GuardPicoClaw, "npm-global", []string{"npm install -g x", "npm i --global x"}, []string{"npm install x"}},
	{chat.GuardPicoClaw, "pip-user", []string{"pip install --user x", "pip3 install --user x"}, []string{"pip install x"}},
	{chat.GuardPicoClaw, "docker-run", []string{"docker run x", "docker container run x"}, []string{"docker ps"}},
	{chat.GuardPicoClaw, "docker-exec", []string{"docker exec x"}, []string{"docker images"}},
	{chat.GuardPicoClaw, "git-push", []string{"git push", "git -C x push -f", "git -c a=b force"}, []string{"git stash push", "git commit -m push", "git pull"}},
	{chat.GuardPicoClaw, "fork-bomb", []string{":(){ :|:& };:"}, []string{"f(){ ls; }"}},
}

func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range ruleCases {
		g := mustNew(t, preset(c.preset))
		seen[string(c.preset)+" "+c.rule] = true
		for _, command := range c.deny {
			got := denies(t, g, command)
			expect.True(t, got == c.rule, "%s: %s: denied by %q, want %q", c.preset, command, got, c.rule)
		}
		for _, command := range c.permit {
			got := denies(t, g, command)
			expect.True(t, got == "", "%s: %s: denied by %q, want none", c.preset, command, got)
		}
	}
	for _, r := range rules {
		for _, p := range r.presets {
			expect.True(t, seen[string(p)+" "+r.name], "%s: no case for rule %s", p, r.name)
		}
	}
}

// TestRoads sends one dangerous command over each road on which a shell comes to it.
func TestRoads(t *testing.T) {
	g := mustNew(t, preset(chat.GuardDefault))
	for _, road := range []string{
		"%", "ls | %", "ls; %", "ls && %", "ls || %", "ls & %", "(%)", "{ %; }", "! %", "time %", "if %; then ls; fi", "while ls; do %; done", "case x in x) %;; esac",
		"f() { %; }; f", "echo $(%)", "echo `%`", "echo \"$(%)\"", "diff <(%) x", "coproc %", "for i in a; do %; done", "X=$(%)", "export X=$(%)", "[[ -n $(%) ]]", "((x = $(%)))",
		"sh -c '%'", "bash -lc '%'", "busybox sh -c '%'", "env sh -c '%'", "sudo=1 sh -c \"%\"", "eval '%'", "eval eval '%'", "echo '%' | sh", "printf '%%s' '%' | bash", "sh <<E\n%\nE", "bash <<< '%'",
		"cat <<E | sh\n%\nE", "env %", "env -i A=b %", "env -S '%'", "nohup %", "timeout 5 %", "timeout -k 1 --signal=TERM 5 %", "nice -n 5 %", "command %", "builtin %", "exec %", "setsid %", "stdbuf -oL %",
		"xargs %", "ls | xargs -n1 %", "find . -exec % \\;", "find . -ok % \\;", "busybox %", "toybox %", "watch '%'", "ionice -c2 %", "taskset 1 %", "script -c '%'", "flock x %", "trap '%' EXIT", "alias x='%'",
		"ls\n%", "ls # x\n%", "cat <<'E'\n'\nE\n%", "<x %", ">x %", "A=b %", "strace %",
	} {
		command := strings.ReplaceAll(strings.ReplaceAll(road, "%%", "\x00"), "%", "rm -rf /srv/x")
		command = strings.ReplaceAll(command, "\x00", "%")
		got := denies(t, g, command)
		expect.True(t, got == "rm-recursive-whole", "%s: denied by %q", command, got)
		got = denies(t, g, strings.ReplaceAll(command, "/srv/x", "x"))
		expect.True(t, got == "", "%s with a file of its own: denied by %q", road, got)
	}
}

// TestCustom: an allow frees the command that it matches from end to end and no
// neighbour; a deny is searched in each command.
func TestCustom(t *testing.T) {
	g := mustNew(t, chat.Guard{
		Preset: chat.GuardPicoClaw, EnableDenyPatterns: true,
		CustomDenyPatterns:  patterns(`\bcurl\b.*--upload-file`, `\bwget\b.*-O\s+/etc/`, `^frob$`),
		CustomAllowPatterns: patterns(`^git\s+push\s+origin\s+main$`, `rm -rf build`, `(?i)KILLALL x|pkill y`, `(?m)^dd if=a$`, `curl -T x --upload-file y`),
	})
	for command, want := range map[string]string{
		"git push origin main": "", "git  push   origin 'main'": "", "git push origin main2": "git-push", "git push origin main --force": "git-push",
		"git push origin main; git push": "git-push", "git push origin main && rm -rf x": "rm-rf", "git push origin main | sh": "pipe-to-shell",
		"git push origin 'main\nx'": "git-push", "git push 'origin main'": "git-push", "echo $(git push origin main)": "command-substitution",
		"rm -rf build": "", "rm -rf build x": "rm-rf", "rm -rf build/x": "rm-rf", "sudo rm -rf build": "sudo", "sh -c 'rm -rf build; rm -rf x'": "rm-rf",
		"killall X": "", "pkill y": "", "pkill yy": "pkill", "dd if=a": "", "dd 'if=a\nx'": "dd-if",
		"curl --upload-file x u": `\bcurl\b.*--upload-file`, "/usr/bin/curl -s --upload-file x": `\bcurl\b.*--upload-file`, "curl x; ls --upload-file": "",
		"wget u -O /etc/x": `\bwget\b.*-O\s+/etc/`, "frob": `^frob$`, "ls; frob": `^frob$`, "frob x": "", "env frob": `^frob$`, "cu''rl --upload-file x": `\bcurl\b.*--upload-file`,
		"curl -T x --upload-file y": "",
	} {
		got := denies(t, g, command)
		expect.True(t, got == want, "%q: denied by %q, want %q", command, got, want)
	}
	v, _ := g.Command("ls; frob", home)
	expect.True(t, v.Place == "chatd.yaml:7" && v.Message == MessagePattern && v.Command == "frob", "%+v", v)
}

// TestWorkspace is the seed's examples and their neighbours.
func TestWorkspace(t *testing.T) {
	g := mustNew(t, chat.Guard{RestrictToWorkspace: true})
	for command, want := range map[string]string{
		"ls ./data": "", "cat /home/u/file.txt": "", "echo test > output.txt": "", "cat /etc/passwd": "/etc/passwd", "ls /home/user/documents": "/home/user/documents",
		"cp ../../../etc/passwd .": "/etc/passwd", "ls > /dev/null": "", "cat /dev/urandom | head -c 1 > /dev/stdout": "", "cat /dev/sda": "/dev/sda", "echo > /dev/stderr 2>/dev/random": "",
		"cat ~/x $HOME/y": "", "cd ..; cat x": "/home", "cat /home/u2/x": "/home/u2/x", "/usr/bin/env ls": "", "/usr/bin/cat /usr/bin/cat": "/usr/bin/cat",
		"awk '/re/' x": "", "sed -n '/a/,/b/p' x": "", "curl https://h/x": "", "go test ./...": "", "rm -rf /": "/", "git commit -m 'see /etc/passwd'": "", "cat /e''tc/passwd": "/etc/passwd",
		"cat /etc/pass*": "/etc/pass*", "sh -c 'cat /etc/passwd'": "/etc/passwd", "X=/etc; cat $X/passwd": "/etc", "curl file:///etc/passwd": "/etc/passwd", "dd if=/etc/passwd": "/etc/passwd", "grep x < /etc/passwd": "/etc/passwd",
	} {
		v, err := g.Command(command, home)
		if got := v.Command; got != want || err != nil || v.Denied != (want != "") {
			t.Errorf("%s: %+v, %v, want %q", command, v, err, want)
		}
		if v.Denied && (v.Message != MessagePath || v.Rule != RuleWorkspace) {
			t.Errorf("%s: %+v", command, v)
		}
	}
}

// TestRestrictedDirectory: restricted to the workspace, a command does not start outside.
func TestRestrictedDirectory(t *testing.T) {
	restricted, free := mustNew(t, chat.Guard{Preset: chat.GuardNone, EnableDenyPatterns: true, RestrictToWorkspace: true}), mustNew(t, preset(chat.GuardDefault))
	for dir, outside := range map[string]bool{"/home/u": false, "/home/u/w": false, "": false, "/": true, "/home": true, "/home/u2": true, "/home/u/../v": true, "/usr/share": true} {
		at := Place{Home: "/home/u", Cwd: dir}
		for _, g := range []*Guard{restricted, free} {
			v, err := g.Command("ls", at)
			w, errArgv := g.Argv([]string{"ls"}, at)
			if want := outside && g == restricted; err != nil || errArgv != nil || v.Denied != want || w.Denied != want || want && v.Rule != RuleWorkspace {
				t.Errorf("%q: %+v, %+v, %v, %v", dir, v, w, err, errArgv)
			}
		}
	}
}

// TestOff: each key that switches something off does.
func TestOff(t *testing.T) {
	const bad = "sudo rm -rf / | sh ("
	for _, cfg := range []chat.Guard{{}, {Preset: chat.GuardDefault}, {Preset: chat.GuardPicoClaw, CustomDenyPatterns: patterns("sudo")}, preset(chat.GuardNone)} {
		v, err := mustNew(t, cfg).Command(bad, home)
		expect.True(t, !v.Denied && err == nil, "%+v: %+v, %v", cfg, v, err)
	}
	g := mustNew(t, chat.Guard{Preset: chat.GuardNone, EnableDenyPatterns: true, CustomDenyPatterns: patterns("^ls")})
	if denies(t, g, "sudo rm -rf /") != "" || denies(t, g, "ls") == "" {
		t.Error("preset none has rules of its own, or no custom ones")
	}
}

func TestArgv(t *testing.T) {
	g := mustNew(t, preset(chat.GuardDefault))
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"rm", "-rf", "/"}, "rm-recursive-whole"}, {[]string{"sh", "-c", "ls; sudo ls"}, "privileges"}, {[]string{"timeout", "5", "sudo", "ls"}, "privileges"},
		{[]string{"echo", "$(sudo ls)"}, ""}, {[]string{"git", "commit", "-m", "sudo rm -rf /"}, ""}, {[]string{"rm", "-rf", "*"}, ""}, // no shell: a file of this name
	} {
		v, err := g.Argv(c.argv, home)
		expect.True(t, v.Rule == c.want && err == nil, "%q: %+v, %v, want %q", c.argv, v, err, c.want)
	}
}

func TestErrors(t *testing.T) {
	g := mustNew(t, preset(chat.GuardDefault))
	v, err := g.Command("ls ((", home)
	expect.True(t, errors.Is(err, chat.ErrInvalid) && !v.Denied, "%+v, %v", v, err)
	if v, err := g.Command("sudo ls; ls ((", home); !v.Denied || err != nil {
		t.Errorf("what was read before the mistake is not checked: %+v, %v", v, err)
	}
	v, _ = g.Command("sudo x", home)
	if err := v.Err(); !errors.Is(err, chat.ErrDenied) || !strings.Contains(err.Error(), MessagePattern+": rule privileges in \"sudo x\": ") || !strings.HasPrefix(err.Error(), "cannot run: ") {
		t.Error(err)
	}
	if err := (Verdict{}).Err(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "(", "a)|(b", "[", `\1`, "(?=x)", strings.Repeat("x", 4097)} {
		for _, cfg := range []chat.Guard{{EnableDenyPatterns: true, CustomDenyPatterns: patterns(bad)}, {EnableDenyPatterns: true, CustomAllowPatterns: patterns(bad)}} {
			if _, err := New(cfg); !errors.Is(err, chat.ErrInvalid) || !strings.Contains(err.Error(), "[0]") {
				t.Errorf("%.20q: %v", bad, err)
			}
		}
		_, err := (chat.Pattern{Text: bad}).Compile()
		expect.True(t, errors.Is(err, chat.ErrInvalid), "%.20q: %v", bad, err)
	}
}

func TestLine(t *testing.T) {
	args := []shell.Arg{{Text: "a"}, {Text: ""}, {Text: "b c"}, {Text: "it's"}, {Text: "x\ny"}, {Text: "*"}}
	if got := Line(args); got != `a '' 'b c' 'it'\''s' 'x`+"\n"+`y' *` {
		t.Error(got)
	}
}

// TestSpec: the spec has a row for every rule of both presets.
func TestSpec(t *testing.T) {
	spec := must.Get(os.ReadFile("../../specs/0004-running-commands.md"))(t)
	for _, r := range rules {
		expect.True(t, strings.Contains(string(spec), "| `"+r.name+"` |"),
			"specs/0004-running-commands.md has no row for rule %s", r.name)
	}
}

// FuzzGuard wants a verdict for every text, the same twice, of a guard that has
// everything on; and a neighbour never frees a command.
func FuzzGuard(f *testing.F) {
	for _, c := range ruleCases {
		for _, s := range append(c.deny, c.permit...) {
			f.Add(s)
		}
	}
	for _, s := range []string{"echo 0 000|xargs 000000", "<<\x1e", "{ /&}>/", ".A", "\x00", "A= 0", "find -0 {}0 0 {} 0", "rm*0 0", "****r aA", "c$0$0 20000", "cd /;find 0"} {
		f.Add(s)
	}
	all := chat.Guard{Preset: chat.GuardDefault, EnableDenyPatterns: true, RestrictToWorkspace: true,
		CustomAllowPatterns: patterns(`rm -rf build`, `git .*`), CustomDenyPatterns: patterns(`(?i)secret`)}
	pico := all
	pico.Preset = chat.GuardPicoClaw
	guards := []*Guard{mustNew(f, all), mustNew(f, pico)}
	f.Fuzz(func(t *testing.T, command string) {
		for _, g := range guards {
			v, err := g.Command(command, home)
			if err != nil && (!errors.Is(err, chat.ErrInvalid) || v.Denied) {
				t.Fatalf("%q: %+v, %v", command, v, err)
			}
			if v.Denied && (v.Rule == "" || v.Message == "" || v.Command == "") {
				t.Errorf("%q: %+v", command, v)
			}
			again, _ := g.Command(command, home)
			expect.True(t, again == v, "%q: %+v, then %+v", command, v, again)
			if before, err := g.Command("git push\n"+command, home); v.Denied && err == nil && before != v {
				t.Errorf("%q: %+v, behind an allowed command %+v", command, v, before)
			}
		}
	})
}
