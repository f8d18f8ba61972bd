package roottest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// openLine is a line of the audit log about opens that the kernel refused.
type openLine struct {
	Chat   string            `json:"chat"`
	Detail map[string]string `json:"detail"`
}

// TestRefusedOpensAreAudited: an open that the kernel refuses leaves a line that names file,
// rule and place, also of a chat that ends its session right behind it. A chat that has
// thousands refused fills no log and hides no line of another's; what has none is counted.
func TestRefusedOpensAreAudited(t *testing.T) {
	opt := ruledOptions(t, "access:\n  deny: ['**/*.pem']\n")
	m := must.Get(openManager(t.Context(), opt))(t)
	defer func() { open(t, opt) }() // which reaps them
	loud, quiet := sleeper(t, m, "loud"), sleeper(t, m, "quiet")
	putFile(t, loud, "mask/old.pem", secret)
	wake(t, m, loud.ID)
	wake(t, m, quiet.ID)
	lines := func(id string) (all []openLine) {
		for _, text := range auditLines(t, opt, `"open"`, `"denied"`, id) {
			var l openLine
			must.Do(t, json.Unmarshal([]byte(text), &l))
			all = append(all, l)
		}
		return all
	}
	refused(t, m, loud, "cat mask/old.pem") // it was there when the session began
	const made = 400
	began := time.Now()
	run(t, m, loud.ID, fmt.Sprintf("for i in $(seq %d); do mkdir d$i; echo x >d$i/k.pem; done; true", made))
	putFile(t, quiet, "sub/key.pem", secret)
	refused(t, m, quiet, "cat sub/key.pem")
	must.Do(t, func() error { _, err := m.Sleep(operator(t.Context()), quiet.ID); return err }())

	of := lines(string(quiet.ID))
	until(t, "the line of the refused open",
		func() bool { of = lines(string(quiet.ID)); return len(of) > 0 })
	must.True(t, len(of) == 1, "%d lines of the chat with one refused open: %v", len(of), of)
	want := map[string]string{"path": strconv.Quote(quiet.Home + "/sub/key.pem"), "rule": strconv.Quote("deny **/*.pem"), "place": strconv.Quote("rules.yaml:2"), "layer": "global deny", "by": "the kernel", "times": "1"}
	for k, v := range want {
		if of[0].Detail[k] != v {
			t.Errorf("%s is %q, want %q: %v", k, of[0].Detail[k], v, of[0].Detail)
		}
	}
	// Denials that are counted and have no line yet are written when chatd ends.
	must.Do(t, m.Close())
	of, sum := lines(string(loud.ID)), 0
	for _, l := range of {
		n := must.Get(strconv.Atoi(l.Detail["times"] + l.Detail["more"]))(t)
		sum += n
	}
	if max := 20 + 3 + 2*int(time.Since(began)/time.Minute); sum != made+1 || len(of) > max {
		t.Errorf("%d refused opens are accounted for in %d lines, want %d in at most %d", sum, len(of), made+1, max)
	}
}

// everyWayIn does what the rules deny, on every way in, as the caller of ctx, and
// returns all that it is told.
func everyWayIn(ctx context.Context, t *testing.T, m *manager, c, other chat.Chat) map[string]string {
	t.Helper()
	answers := map[string]string{}
	tell := func(way string, err error) {
		if !errors.Is(err, chat.ErrDenied) {
			t.Errorf("%s: not denied: %v", way, err)
			return
		}
		var d *filewire.Denial
		_ = errors.As(err, &d)
		fields, _ := json.Marshal(d)
		answers[way] = err.Error() + " " + string(fields)
	}
	begin := func(filewire.Answer) io.Writer { return io.Discard }
	k := front(t, m)
	tell("run", expect.Err(k.Run(ctx, c.ID, chat.RunSpec{Command: "cat vault/key"})))
	tell("run argv", expect.Err(k.Run(ctx, c.ID, chat.RunSpec{Argv: []string{"cat", "vault/key"}})))
	tell("read_file", expect.Err(m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "vault/key"}, begin)))
	tell("read_file by a link", expect.Err(m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "link/key"}, begin)))
	tell("list_dir", expect.Err(m.ListDir(ctx, c.ID, filewire.ListDir{Path: "vault"}, begin)))
	text := "x"
	tell("write_file", expect.Err(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "vault/new", Content: &text}, nil)))
	tell("append_file", expect.Err(m.AppendFile(ctx, c.ID, filewire.WriteFile{Path: "vault/new", Content: &text}, nil)))
	tell("share from", expect.Err(m.Share(ctx, c.ID, chat.Share{Path: "vault/key", To: other.ID, ToPath: "key"})))
	tell("share by a link", expect.Err(m.Share(ctx, c.ID, chat.Share{Path: "link/key", To: other.ID, ToPath: "key"})))
	tell("share to", expect.Err(m.Share(ctx, other.ID, chat.Share{Path: "open", To: c.ID, ToPath: "vault/new"})))
	for _, q := range []chat.Question{{Path: "vault/key", Op: "read"}, {Path: "link/key", Op: "read"}, {Command: "cat vault/key"}} {
		e, err := k.Explain(ctx, c.ID, q)
		expect.True(t, err == nil && e.Verdict == "deny", "explain %+v: %+v, %v", q, e, err)
		answers["explain "+q.Path+q.Command] = e.Rule + e.Place + e.Layer
	}
	return answers
}

// TestTerseOnEveryWay: with messages: vague only operators are told the rule that denies, its place
// or the path, by any interface; the audit log has them.
func TestTerseOnEveryWay(t *testing.T) {
	const rules = "access: {useDefaults: false, messages: %s, deny: ['~/vaul?/**']}\n"
	opt := ruledOptions(t, fmt.Sprintf(rules, "vague"))
	edit(opt, "ruled", func(p *chat.Profile) { p.Guard = chat.DefaultGuard() })
	m := open(t, opt)
	bridge := chat.WithCaller(t.Context(), chat.Caller{Name: "bridge", Role: chat.RoleBridge})
	var chats [2]chat.Chat
	for i := range chats {
		c, _, err := m.Create(bridge, chat.Spec{ExternalID: fmt.Sprint(i), Profile: "ruled", Awake: new(false)})
		must.Do(t, err)
		chats[i] = c
		putFile(t, c, "vault/key", "k")
		putFile(t, c, "open", "o")
		must.Do(t, os.Symlink("vault", filepath.Join(c.Home, "link")))
	}
	knows := func(s string) bool {
		return strings.Contains(s, "vaul?") || strings.Contains(s, "rules.yaml") || strings.Contains(s, "global")
	}
	for way, answers := range everyWayIn(bridge, t, m, chats[0], chats[1]) {
		expect.True(t, !knows(answers) && !strings.Contains(answers, "vault"),
			"terse: %s tells a bridge %s", way, answers)
		if strings.HasPrefix(way, "run") && !strings.Contains(answers, "Access denied by policy") {
			t.Errorf("terse: %s tells %s", way, answers)
		}
	}
	if last := lastAudit(t, opt); !strings.Contains(last, "vaul?") || !strings.Contains(last, "rules.yaml") {
		t.Errorf("the audit log has not which rule it was: %s", last)
	}
	for way, answers := range everyWayIn(operator(t.Context()), t, m, chats[0], chats[1]) {
		if strings.HasPrefix(way, "explain") && !knows(answers) {
			t.Errorf("terse: %s tells an operator %q", way, answers)
		}
	}
	m.SetFileRules(map[string]*filerules.Policy{"ruled": policy(t, fmt.Sprintf(rules, "verbose"))})
	for way, answers := range everyWayIn(bridge, t, m, chats[0], chats[1]) {
		// By a link it is the kernel that denies: the enforcer's mask mount is in the way.
		if !knows(answers) && !strings.HasSuffix(way, "by a link") {
			t.Errorf("verbose: %s tells a bridge %s", way, answers)
		}
	}
}

// TestKernelDenialsNameTheRule: where the kernel refuses by a rule whose name the caller did not
// use, the answer, the audit log and explain name the rule and its line; with messages: vague
// none but operators hear of it. A mode that refuses is not a rule.
func TestKernelDenialsNameTheRule(t *testing.T) {
	for _, messages := range []string{"verbose", "vague"} {
		t.Run(messages, func(t *testing.T) {
			opt := ruledOptions(t, fmt.Sprintf("access:\n  messages: %s\n  deny: ['**/vaul?/**', '**/*.pem']\n", messages))
			m := open(t, opt)
			bridge := asBridge(t.Context(), "bridge")
			c := must.First(m.Create(bridge, chat.Spec{ExternalID: "why", Profile: "ruled", Awake: new(false)}))(t)
			pem := putFile(t, c, "a.pem", secret)
			must.Do(t, errors.Join(os.Chown(pem, int(c.UID), int(c.UID)), os.Link(pem, filepath.Join(c.Home, "linked"))))
			putDir(t, c, "vault")
			putDir(t, c, "shut")
			must.Do(t, os.Symlink("vault", filepath.Join(c.Home, "way")))
			must.Do(t, os.Chmod(filepath.Join(c.Home, "shut"), 0))
			wake(t, m, c.ID)
			for _, ctx := range []context.Context{operator(t.Context()), bridge} {
				kernelDenials(ctx, t, opt, m, c, messages == "vague" && chat.CallerFrom(ctx).Role != chat.RoleOperator)
			}
			must.Get(m.Sleep(operator(t.Context()), c.ID))(t)
			if text, err := get(t, m, c.ID, "linked"); err != nil {
				t.Errorf("asleep, a file of the chat's own is judged by the name: %q, %v", text, err)
			}
			must.Do(t, errors.Join(os.Chown(pem, 0, 0), os.Chmod(pem, 0o644)))
			var d *filewire.Denial
			if _, err := get(t, m, c.ID, "linked"); !errors.As(err, &d) || d.Rule != filewire.RuleHardLink {
				t.Errorf("asleep, another owner's file: %v, %#v", err, d)
			}
		})
	}
}

func kernelDenials(ctx context.Context, t *testing.T, opt provision.Options, m *manager, c chat.Chat, terse bool) {
	t.Helper()
	_, err := m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: "linked"}, func(filewire.Answer) io.Writer { return io.Discard })
	var d *filewire.Denial
	switch {
	case !errors.As(err, &d):
		t.Errorf("the other name of a denied file: %v", err)
	case terse && (d.Rule+d.Place+d.Layer+d.Path != "" || strings.Contains(err.Error(), "pem")):
		t.Errorf("terse: %#v", d)
	case !terse && (d.Rule != "deny **/*.pem" || d.Place != "rules.yaml:3"):
		t.Errorf("%#v", d)
	}
	expect.True(t, len(auditLines(t, opt, "read_file", "denied", "deny **/*.pem", "rules.yaml:3")) != 0,
		"no line of the audit log names the rule")
	e, err := m.Explain(ctx, c.ID, chat.Question{Path: "linked", Op: "read"})
	expect.True(t, err == nil && e.Verdict == "deny" && e.ByKernel && terse != (e.Place == "rules.yaml:3"),
		"explain: %+v, %v", e, err)
	for _, dir := range []string{"vault", "way"} { // chdir(2) opens nothing
		r, err := m.Run(ctx, c.ID, chat.RunSpec{Command: "ls", Cwd: dir})
		expect.True(t, err == nil && r.Exit != 0 && strings.Contains(r.Stderr, "Operation not permitted"),
			"a run in %s: %+v, %v", dir, r, err)
	}
	if _, err = m.Run(ctx, c.ID, chat.RunSpec{Command: "true", Cwd: "shut"}); err == nil || strings.Contains(err.Error(), "rule") {
		t.Errorf("a directory without a mode: %v", err)
	}
}

// TestRefusedToolsAreLogged: each refused tool leaves a line in the log with tool, error and chat, at
// a level that log_level warn leaves out; a denial names a path below ~ where its rule does.
func TestRefusedToolsAreLogged(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelInfo: 2, slog.LevelWarn: 0} {
		t.Run(level.String(), func(t *testing.T) {
			opt := ruledOptions(t, "access:\n  useDefaults: false\n  deny: ['~/keys/**']\n")
			edit(opt, "ruled", func(p *chat.Profile) { p.ToolsOff = []string{chat.ToolWriteFile} })
			var log lockedBuffer
			opt.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level}))
			m := open(t, opt)
			c := sleeper(t, m, "logged")
			putFile(t, c, "keys/k", secret)
			_, err := get(t, m, c.ID, "keys/k")
			expect.Says(t, err, nil, "Access denied: ~/keys/k blocked by policy", "the denial")
			_, err = m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: "f", Content: new(string)}, nil)
			expect.True(t, err != nil, "a tool that is off works")
			var all []string
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "a tool was refused") {
					all = append(all, line)
				}
			}
			must.True(t, len(all) == want, "at %s: %q", level, all)
			for i, tool := range []string{"tool=read_file", "tool=write_file"}[:want] {
				if !strings.Contains(all[i], tool) || !strings.Contains(all[i], "error=") || !strings.Contains(all[i], "chat="+string(c.ID)) {
					t.Errorf("%q has not %s, error and chat", all[i], tool)
				}
			}
		})
	}
}
