package shims

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/plan"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// A whole session: tmux in front, a shell with a prompt, commands that join.
func TestSession(t *testing.T) {
	for _, network := range []chat.Network{chat.NetworkOwn, chat.NetworkNone} {
		t.Run(string(network), func(t *testing.T) {
			v := newView(t)
			v.Network = network
			fifo := must.Get(os.OpenFile(v.PromptFIFO, os.O_RDWR, 0))(t)
			defer fifo.Close()
			tmux := v.Plan(v.Home, 1, []string{"/usr/bin/tmux", "-f", plan.InsideTmux, "-D", "-S", plan.Socket}, nil)
			session := startSession(t, v, tmux)
			initPID := session.initPID
			if r := session.reports(t); len(r) != 1 || r[0].Error != "" || len(r[0].NSPids) != 1 {
				t.Fatalf("reports %+v, said %s", r, session.out.String())
			}
			run := func(argv ...string) string {
				out, code, reports := join(t, v, initPID, v.Plan(v.Home, 1, argv, nil)).wait(t)
				must.True(t, code == 0 && len(reports) == 1,
					"%q: exit %d, %+v: %s", argv, code, reports, out)
				return out
			}
			client := func(argv ...string) string {
				return run(append([]string{"/usr/bin/tmux", "-S", plan.Socket}, argv...)...)
			}
			eventually(t, "the socket", func() bool { return strings.Contains(run("ls", plan.InsideRun), "tmux.sock") })
			client("new-session", "-d", "-s", "main", "-x", "120", "-y", "40")
			one := make([]byte, 8)
			n, err := fifo.Read(one)
			must.True(t, err == nil && string(one[:n]) == ".", "fifo gave %q, %v", one[:n], err)
			client("send-keys", "-t", "main", "echo here $((6*7)) $USER; sudo id; tty", "Enter")
			eventually(t, "the answer on the screen", func() bool {
				s := client("capture-pane", "-p", "-t", "main")
				return strings.Contains(s, "here 42 chat-test") && strings.Contains(s, "chatd: sudo refused") && strings.Contains(s, "/dev/pts/")
			})
			joinedIsConfined(t, v, initPID)
		})
	}
}

// joinedIsConfined: nsenter leaves no_new_privs 0 and no filter; what the
// command has comes from Confine alone. It sees and may signal the session.
func joinedIsConfined(t *testing.T, v plan.View, initPID int) {
	t.Helper()
	out, code, _ := join(t, v, initPID, v.Plan("/tmp", 1, []string{"sh", "-c", "cat /proc/self/status; pwd; kill -0 1 && echo may signal; unshare -U true"}, nil)).wait(t)
	s := must.Get(plan.ParseStatus(out))(t)
	if code != 126 || !s.NoNewPrivs || s.Seccomp != 2 || s.CapEff|s.CapPrm|s.CapInh|s.CapAmb != 0 || len(s.Groups) > 0 && s.Groups[0] != int(v.UID) {
		t.Errorf("joined: exit %d, %+v", code, s)
	}
	if !strings.Contains(out, "\n/tmp\n") || !strings.Contains(out, "may signal") || !strings.Contains(out, "unshare refused") {
		t.Errorf("joined: %s", out)
	}
	t.Logf("joined: bounding set %x", s.CapBnd)
	for attack, want := range map[string]string{"whiteout /tmp/w": "EPERM", "write /proc/self/oom_score_adj": "EACCES", "list /": "EACCES", "stat /sys/kernel": "ENOENT"} {
		argv := append([]string{v.Home + "/attack"}, strings.Fields(attack)...)
		out, _, _ := join(t, v, initPID, v.Plan(v.Home, 1, argv, nil)).wait(t)
		expect.True(t, out == want, "joined: %s: %s, want %s", attack, out, want)
	}
}

// The prompt hook must not block or complain when nobody listens or when the
// fifo is not there, and must keep what ~/.bashrc set.
func TestBashrc(t *testing.T) {
	v := newView(t)
	must.Do(t, os.WriteFile(v.Home+"/.bashrc", []byte("PROMPT_COMMAND='echo mine'\nalias greet='echo hello from alias'\n"), 0o644))
	for _, fifo := range []string{v.PromptFIFO, ""} {
		v.PromptFIFO = fifo
		p := v.Plan(v.Home, 1, []string{"/bin/sh", "-c", "printf 'greet\\nPS1=\\necho count ${#PROMPT_COMMAND[@]}\\n' | " + strings.Join(plan.ShellArgv(), " ")}, nil)
		out, code, _ := startSession(t, v, p).wait(t)
		if code != 0 || !strings.Contains(out, "hello from alias") || strings.Count(out, "mine") < 2 || !strings.Contains(out, "count 2") || strings.Contains(out, "prompt:") || !strings.Contains(out, "\x1b]133;D;0\a\x1b]133;A\a") || !strings.Contains(out, "\x1b]133;B\a") {
			t.Errorf("fifo %q: exit %d: %s", fifo, code, out)
		}
	}
}

// Everyday programs run inside.
func TestEverydayPrograms(t *testing.T) {
	v := newView(t)
	for _, c := range []struct{ program, script, want string }{
		{"bash", "diff <(echo a) <(echo a) && echo same; mkfifo f; ls | wc -l >/dev/stderr", "same"},
		{"git", "git init -q r && cd r && echo x >x && git add x && git -c user.name=a -c user.email=a@b commit -qm m && git log --format=%s", "m"},
		{"gcc", "echo 'int puts(const char*);int main(){return puts(\"compiled\")<0;}' >a.c && gcc a.c -o a && ./a", "compiled"},
		{"perl", "perl -e 'print join q( ), map { $_*2 } 1..3'", "2 4 6"},
		{"python3", "python3 -c 'import threading,socket; t=threading.Thread(target=lambda: print(\"thread\")); t.start(); t.join(); socket.socket()'", "thread"},
		{"node", "node -e 'setTimeout(()=>console.log(\"later\"),1)'", "later"},
		{"awk", "awk 'BEGIN{print 1+1}'", "2"},
		{"id", "id -un; id -gn; getent hosts localhost", "chat-test\nchat-test"},
		{"setsid", "setsid sleep 0; mv a.c /tmp/b.c 2>/dev/null; script -qc 'tty' /dev/null", "/dev/pts/"},
		{"ln", "mkdir -p d e; echo x >d/x; ln d/x e/y && mv e/y d/z && cat d/z", "x"},
	} {
		t.Run(c.program, func(t *testing.T) {
			p, err := exec.LookPath(c.program)
			if err == nil {
				p, err = filepath.EvalSymlinks(p)
			}
			if err != nil || !strings.HasPrefix(p, "/usr/") {
				if p2, err2 := filepath.EvalSymlinks("/usr/bin/" + c.program); err2 != nil || !strings.HasPrefix(p2, "/usr/") {
					need(t, false, c.program+": not below /usr on this host")
				}
			}
			out, code, _ := runIn(t, v, "bash", "-c", c.script)
			expect.True(t, code == 0 && strings.Contains(out, c.want),
				"exit %d: %s; want %s", code, out, c.want)
		})
	}
}

// A chat that ends leaves nothing: process 1 takes the namespace with it.
func TestSessionEndsWithInit(t *testing.T) {
	v := newView(t)
	s := startSession(t, v, v.Plan(v.Home, 1, []string{"sh", "-c", "setsid sleep 1000 & exec sleep 1000"}, nil))
	s.reports(t)
	must.Do(t, syscall.Kill(s.initPID, syscall.SIGKILL))
	expect.True(t, s.cmd.Wait() != nil, "bwrap ended well though its child was killed")
}

// Many runs after another must not use up the chat's quota of keys (keyrings(7),
// 200 for a uid): each has a session keyring, which goes with it.
func TestManyRuns(t *testing.T) {
	v := newView(t)
	s := startSession(t, v, v.Plan(v.Home, 1, []string{"sleep", "1000"}, nil))
	s.reports(t)
	for i := range 250 {
		out, code, _ := join(t, v, s.initPID, v.Plan(v.Home, 1, []string{"true"}, nil)).wait(t)
		must.True(t, code == 0, "run %d: exit %d: %s", i, code, out)
	}
}

func BenchmarkConfineTrue(b *testing.B) {
	shim := must.Get(buildShim())(b)
	text := []byte(`{"dir":"/","argv":["/bin/true"],"min_abi":1,"landlock":{"exec":["/usr"],"read":["/proc"]}}`)
	for _, c := range []struct {
		name string
		argv []string
	}{{"true", []string{"/bin/true"}}, {"confined", []string{shim, "confine", "--plan-fd", "0"}}, {"refused", []string{shim}}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command(c.argv[0], c.argv[1:]...)
				cmd.Stdin = bytes.NewReader(text)
				if c.name == "refused" {
					cmd.Args[0] = "sudo"
				}
				if err := cmd.Run(); err != nil && c.name != "refused" {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFileTool: the tool does one request where its first line lets it, and what is
// no such line ends it before it looks at anything.
func TestFileTool(t *testing.T) {
	home := t.TempDir()
	line := must.Get(plan.FileTool{Workspace: home, MaxBytes: 4}.Line())(t)
	write := func(content string) string {
		return `{"tool":"write_file","parameters":{"path":"f","content":"` + content + `"}}` + "\n"
	}
	for _, c := range []struct{ name, in, want string }{
		{"a request", string(line) + write("abcd"), `"message":"File written: f"`},
		{"only one request", string(line) + write("1") + write("2"), `"size":1,`},
		{"more than max_bytes", string(line) + write("abcde"), `more than 4 bytes`},
		{"no request", string(line), `cannot read the request`},
	} {
		var out bytes.Buffer
		err := serveFileTool(strings.NewReader(c.in), &out)
		expect.True(t, err == nil && strings.Contains(out.String(), c.want) && strings.Count(out.String(), "\n") == 1, "%s: %v, %q", c.name, err, out.String())
	}
	for _, bad := range []string{
		"", "\n", "{}", write("x"), `{"workspace":"/"} {}` + "\n", `{"workspace":"/","check":true}` + "\n", `{"workspace":7}` + "\n",
		`{"workspace":"` + strings.Repeat("x", plan.MaxFileTool) + `"}` + "\n",
	} {
		var out bytes.Buffer
		err := serveFileTool(strings.NewReader(bad), &out)
		expect.True(t, errors.Is(err, chat.ErrInvalid) && out.Len() <= 0, "%.40q: %v, %q", bad, err, out.String())
	}
	for _, workspace := range []string{"", "relative", home + "/missing"} {
		line := must.Get(plan.FileTool{Workspace: workspace}.Line())(t)
		expect.True(t, serveFileTool(bytes.NewReader(line), &bytes.Buffer{}) != nil,
			"workspace %q was opened", workspace)
	}
	expect.True(t, runFileTool([]string{"x"}, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}) != 0,
		"an argument was taken")
}
