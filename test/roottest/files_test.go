package roottest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/provision"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// fileRules are the rules of the profile default in the tests of the file tools.
const fileRules = `access:
  useDefaults: false
  rules:
    - {deny: "**/.env"}
    - {deny: "~/ro/**", ops: [write, edit]}
    - {deny: "~/wo/**", ops: [read]}
`

// withRules gives the profile default file rules.
func withRules(t testing.TB, opt provision.Options) provision.Options {
	t.Helper()
	p := must.Get(rulefile.Load("rules.yaml", []byte(fileRules)))(t)
	opt.FileRules = map[string]*filerules.Policy{chat.DefaultProfile: p}
	return opt
}

// put writes a file by its tool.
func put(t testing.TB, m *manager, id chat.ID, name, text string) filewire.Answer {
	t.Helper()
	a, err := m.WriteFile(operator(t.Context()), id, filewire.WriteFile{Path: name, Content: &text}, nil)
	must.True(t, err == nil, "write %s: %v", name, err)
	return a
}

// get reads a file by its tool.
func get(t testing.TB, m *manager, id chat.ID, name string) (string, error) {
	t.Helper()
	var b bytes.Buffer
	_, err := m.ReadFile(operator(t.Context()), id, filewire.ReadFile{Path: name}, func(filewire.Answer) io.Writer { return &b })
	return b.String(), err
}

// inBothPhases runs f for a chat that is awake and one that is asleep, and wants
// them to be so afterwards, without a process or a cgroup of the second.
func inBothPhases(t *testing.T, m *manager, f func(t *testing.T, c chat.Chat)) {
	t.Run("awake", func(t *testing.T) {
		c := create(t, m, "awake "+t.Name(), "default")
		f(t, c)
		got, err := m.Get(operator(t.Context()), c.ID)
		expect.True(t, err == nil && got.Awake, "afterwards: awake is %v, %v", got.Awake, err)
	})
	t.Run("asleep", func(t *testing.T) {
		c := asleep(t, m, "asleep "+t.Name())
		f(t, c)
		isAsleep(t, m, c)
	})
}

// isAsleep: no session, and no process of its uid.
func isAsleep(t testing.TB, m *manager, c chat.Chat) {
	t.Helper()
	got, err := m.Get(operator(t.Context()), c.ID)
	expect.True(t, err == nil && !got.Awake, "afterwards: awake is %v, %v", got.Awake, err)
	pids := pidsOf(c.UID)
	expect.True(t, len(pids) == 0, "processes of a chat that is asleep: %v", pids)
}

// TestFileTools: the five tools do what they say, awake or asleep, and the files
// are the chat's.
func TestFileTools(t *testing.T) {
	m := open(t, withRules(t, options(t)))
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		ctx := operator(t.Context())
		if a := put(t, m, c.ID, "d/f.txt", "one\ntwo\n"); !a.Created || a.Message != "File written: d/f.txt" || a.Path != c.Home+"/d/f.txt" || a.Mode != 0o600 {
			t.Errorf("write: %+v", a)
		}
		expect.Equal(t, must.Get(get(t, m, c.ID, c.Home+"/d/f.txt"))(t), "one\ntwo\n", "read")
		a, err := m.EditFile(ctx, c.ID, filewire.EditFile{Path: "d/f.txt", OldText: "two", NewText: "2"})
		expect.True(t, err == nil && strings.Contains(a.Diff, "-two\n+2\n"), "edit: %+v, %v", a, err)
		more := "three\n"
		if _, err := m.AppendFile(ctx, c.ID, filewire.WriteFile{Path: "d/f.txt", Content: &more}, nil); err != nil {
			t.Errorf("append: %v", err)
		}
		var list bytes.Buffer
		if _, err := m.ListDir(ctx, c.ID, filewire.ListDir{}, func(filewire.Answer) io.Writer { return &list }); err != nil || !strings.Contains(list.String(), "DIR:  d\n") {
			t.Errorf("list: %q, %v", list.String(), err)
		}
		got, err := os.ReadFile(filepath.Join(c.Home, "d/f.txt"))
		expect.True(t, err == nil && string(got) == "one\n2\nthree\n", "on the host: %q, %v", got, err)
		if fi, err := os.Stat(filepath.Join(c.Home, "d/f.txt")); err != nil || fi.Sys().(*syscall.Stat_t).Uid != c.UID {
			t.Errorf("the file is not the chat's: %+v, %v", fi, err)
		}
		put(t, m, c.ID, "/tmp/x", "tmp")
		expect.Equal(t, must.Get(get(t, m, c.ID, "/tmp/x"))(t), "tmp", "/tmp")
		expect.Says(t, expect.Err(get(t, m, c.ID, "nothing")),
			chat.ErrNotFound, "failed to read file: file not found", "what is not there")
	})
}

// auditLines are the lines of the audit log that hold all the words.
func auditLines(t testing.TB, opt provision.Options, words ...string) (found []string) {
	t.Helper()
	for line := range strings.Lines(auditText(t, opt)) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// TestToolsKeepRules: what the rules deny is denied by either name, before anything
// is made, and audited with rule, place and path; writes are audited before and after.
func TestToolsKeepRules(t *testing.T) {
	opt := withRules(t, options(t))
	m := open(t, opt)
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		ctx := operator(t.Context())
		must.Do(t, os.Symlink(".env", filepath.Join(c.Home, "plain")))
		for _, name := range []string{".env", "plain", "./x/../.env", c.Home + "/.env", "new/.env", "/tmp/.env"} {
			for tool, err := range everyTool(ctx, m, c.ID, name) {
				var d *filewire.Denial
				if !errors.As(err, &d) || d.Rule != "deny **/.env" || d.Place != "rules.yaml:4" || d.Layer != "global rules" || d.Message != "Access denied: "+d.Path+" blocked by policy" {
					t.Errorf("%s %s: %#v", tool, name, err)
				}
				expect.True(t, len(auditLines(t, opt, `"`+string(tool)+`"`, `"denied"`, string(c.ID), "deny **/.env", "rules.yaml:4", d.Path, `"by":"rules"`)) != 0,
					"%s %s is not audited", tool, name)
			}
		}
		expect.True(t, expect.Err(os.Stat(filepath.Join(c.Home, "new"))) != nil,
			"a write that is denied made a directory")
		put(t, m, c.ID, "wo/f", "x")
		expect.Is(t, expect.Err(get(t, m, c.ID, "wo/f")), chat.ErrDenied,
			"read of what may be written only")
		must.Do(t, os.Mkdir(filepath.Join(c.Home, "ro"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(c.Home, "ro/f"), []byte("r"), 0o644))
		must.Do(t, os.Lchown(filepath.Join(c.Home, "ro/f"), int(c.UID), int(c.UID)))
		text := "x"
		expect.Is(t, expect.Err(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: "ro/f", Content: &text}, nil)), chat.ErrDenied,
			"write of what may be read only")
		// It is refused for the milliseconds until its read-only mount is there: specs/0003.
		until(t, "what may be read is read", func() bool {
			text, err := get(t, m, c.ID, "ro/f")
			return err == nil && text == "r"
		})
		for _, outcome := range []string{"intent", "done"} {
			if got := auditLines(t, opt, "write_file", outcome, string(c.ID), "wo/f"); len(got) != 1 {
				t.Errorf("a write is audited %d times as %s", len(got), outcome)
			}
		}
		got := must.Get(m.Get(ctx, c.ID))(t)
		expect.True(t, got.UsedAt.After(c.UsedAt), "used_at was not moved")
	})
}

// TestDeniedIsNotDone: of a denied edit the answer, the audit log and the file agree.
func TestDeniedIsNotDone(t *testing.T) {
	opt := options(t)
	opt.FileRules = map[string]*filerules.Policy{"default": policy(t, `access: {useDefaults: false, rules: [{deny: "~/ledger.txt", ops: [edit]}]}`)}
	m := open(t, opt)
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		name := putFile(t, c, "ledger.txt", "paid: 1\n")
		for _, by := range []string{"ledger.txt", "link"} {
			if by == "link" {
				must.Do(t, os.Symlink("ledger.txt", filepath.Join(c.Home, by)))
			}
			_, err := m.EditFile(operator(t.Context()), c.ID, filewire.EditFile{Path: by, OldText: "1", NewText: "2"})
			var d *filewire.Denial
			if !errors.As(err, &d) || d.Op != filewire.Edit || d.Rule != "deny ~/ledger.txt for edit" {
				t.Errorf("edit of %s: %#v", by, err)
			}
			expect.Equal(t, string(must.Get(os.ReadFile(name))(t)), "paid: 1\n",
				"edit of %s is denied, and the file says", by)
			if len(auditLines(t, opt, `"edit_file"`, `"denied"`, string(c.ID), "deny ~/ledger.txt for edit")) == 0 {
				t.Errorf("the denied edit of %s is not audited", by)
			}
		}
		e, err := m.Explain(operator(t.Context()), c.ID, chat.Question{Path: "~/ledger.txt", Op: "edit"})
		expect.True(t, err == nil && e.Verdict == "deny" && e.Rule == "deny ~/ledger.txt for edit",
			"explain of an edit: %+v, %v", e, err)
	})
}

// TestToolsByTheKernel: what the kernel denies is denied and audited too, and said to
// be the chat's side's word.
func TestToolsByTheKernel(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	c := create(t, m, "shut", "default")
	run(t, m, c.ID, "mkdir shut; echo x >shut/f; chmod 0 shut")
	var d *filewire.Denial
	_, err := get(t, m, c.ID, "shut/f")
	expect.True(t, errors.As(err, &d) && d.Rule == filewire.RuleKernel && d.Place == "EACCES", "%#v", err)
	expect.True(t, len(auditLines(t, opt, "read_file", "denied", "kernel", "shut/f", "the chat's side")) == 1,
		"it is not audited")
}

// TestToolGrants: what the profile grants beyond the workspace, and no more.
func TestToolGrants(t *testing.T) {
	opt := options(t)
	edit(opt, "reader", func(p *chat.Profile) { p.AllowReadOutsideWorkspace = true })
	edit(opt, "off", func(p *chat.Profile) { p.ToolsOff = []string{chat.ToolWriteFile} })
	m := open(t, opt)
	reader, plain, off := create(t, m, "reader", "reader"), create(t, m, "plain", "default"), create(t, m, "off", "off")
	if text, err := get(t, m, reader.ID, "/proc/self/status"); err != nil || !strings.HasPrefix(text, "Name:") {
		t.Errorf("what the view shows: %q, %v", text, err)
	}
	expect.Is(t, expect.Err(get(t, m, plain.ID, "/proc/self/status")), chat.ErrDenied,
		"without the grant")
	text := "x"
	expect.Is(t, expect.Err(m.WriteFile(operator(t.Context()), reader.ID, filewire.WriteFile{Path: "/dev/shm/f", Content: &text}, nil)), chat.ErrDenied,
		"a read grant let write")
	expect.Is(t, expect.Err(m.WriteFile(operator(t.Context()), off.ID, filewire.WriteFile{Path: "f", Content: &text}, nil)), chat.ErrDenied,
		"a tool that is off")
	expect.True(t, len(auditLines(t, opt, "write_file", "denied", "tools_off")) == 1,
		"that is not audited")
}

// TestToolsOfAgents: a chat of an agent with tools: [readonly] reads, and has no way to write: no
// run, no terminal, no schedule's run, no tool. A chat of another agent in the profile has all.
func TestToolsOfAgents(t *testing.T) {
	opt := options(t)
	edit(opt, "default", func(p *chat.Profile) {
		p.Agents = map[string]chat.AgentTools{"reader": {Tools: []string{chat.ToolReadOnly}}}
	})
	m := open(t, opt)
	ctx := operator(t.Context())
	reader := must.First(m.Create(ctx, chat.Spec{ExternalID: "reads", Agent: "reader"}))(t)
	other := create(t, m, "does all", "default")
	text := "x"
	putFile(t, reader, "e", text)
	putFile(t, other, "e", text)
	for what, act := range map[string]func(id chat.ID) error{
		"run": func(id chat.ID) error {
			_, err := front(t, m).Run(ctx, id, chat.RunSpec{Command: "true"})
			return err
		},
		"input": func(id chat.ID) error { return m.Input(ctx, id, chat.Input{Text: "true", Enter: true}) },
		"write": func(id chat.ID) error {
			_, err := m.WriteFile(ctx, id, filewire.WriteFile{Path: "f", Content: &text}, nil)
			return err
		},
		"append": func(id chat.ID) error {
			_, err := m.AppendFile(ctx, id, filewire.WriteFile{Path: "g", Content: &text}, nil)
			return err
		},
		"edit": func(id chat.ID) error {
			_, err := m.EditFile(ctx, id, filewire.EditFile{Path: "e", OldText: "x", NewText: "y"})
			return err
		},
	} {
		expect.Is(t, act(reader.ID), chat.ErrDenied, "%s of the reader", what)
		err := act(other.ID)
		expect.True(t, !errors.Is(err, chat.ErrDenied), "%s of the other: %v", what, err)
	}
	putFile(t, reader, "r", "to read")
	expect.Equal(t, must.Get(get(t, m, reader.ID, "r"))(t), "to read", "the reader reads")
	for _, to := range [][2]chat.Chat{{reader, other}, {other, reader}} {
		if got, err := get(t, m, to[0].ID, to[1].Home+"/e"); !errors.Is(err, chat.ErrDenied) {
			t.Errorf("%s reads %q of %s, %v", to[0].Agent, got, to[1].Agent, err)
		}
	}
}

// TestExplainInAChat: by the rules of the chat, with the links that it has.
func TestExplainInAChat(t *testing.T) {
	m := open(t, withRules(t, options(t)))
	inBothPhases(t, m, func(t *testing.T, c chat.Chat) {
		must.Do(t, os.Symlink(".env", filepath.Join(c.Home, "plain")))
		must.Do(t, os.Symlink("/", filepath.Join(c.Home, "slash")))
		for _, q := range []struct {
			chat.Question
			verdict, name string
		}{
			{chat.Question{Path: ".env", Op: "read"}, "deny", c.Home + "/.env"},
			{chat.Question{Path: "plain", Op: "bash"}, "deny", c.Home + "/.env"},
			{chat.Question{Path: "~/ro/x", Op: "write"}, "deny", c.Home + "/ro/x"},
			{chat.Question{Path: "slash" + c.Home + "/plain", Op: "edit"}, "deny", c.Home + "/.env"},
			{chat.Question{Path: "ro/x", Op: "read"}, "allow", c.Home + "/ro/x"},
			{chat.Question{Command: "cat plain >x"}, "deny", c.Home + "/.env"},
			{chat.Question{Command: "cat x"}, "allow", ""},
		} {
			got, err := front(t, m).Explain(operator(t.Context()), c.ID, q.Question)
			if err != nil || got.Verdict != q.verdict || got.Name != q.name || (got.Verdict == "deny") != strings.HasPrefix(got.Place, "rules.yaml:") {
				t.Errorf("%+v: %+v, %v", q.Question, got, err)
			}
		}
		expect.Is(t, expect.Err(front(t, m).Explain(operator(t.Context()), c.ID, chat.Question{Command: "cat (("})), chat.ErrInvalid,
			"no command")
	})
}

// TestShare: a file goes both ways, by the rules of both, whether they are awake or
// not, and nothing is left of one that may not.
func TestShare(t *testing.T) {
	opt := withRules(t, options(t))
	m := open(t, opt)
	ctx := operator(t.Context())
	chats := []chat.Chat{create(t, m, "share awake", "default"), asleep(t, m, "share asleep"), create(t, m, "share awake too", "default"), asleep(t, m, "share asleep too")}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	sum := sha256.Sum256([]byte(big))
	for i, from := range chats {
		put(t, m, from.ID, "d/f", big)
		for j, to := range chats {
			if i == j {
				continue
			}
			name := fmt.Sprintf("in/%d", i)
			got, err := m.Share(ctx, from.ID, chat.Share{Path: "d/f", To: to.ID, ToPath: name})
			if err != nil || got.SHA256 != hex.EncodeToString(sum[:]) || got.Bytes != int64(len(big)) || got.ToPath != to.Home+"/"+name {
				t.Errorf("%d to %d: %+v, %v", i, j, got, err)
			}
			b, err := os.ReadFile(filepath.Join(to.Home, name))
			expect.True(t, err == nil && string(b) == big, "%d to %d: %d bytes, %v", i, j, len(b), err)
			if len(auditLines(t, opt, `"share"`, `"done"`, got.SHA256, string(from.ID), string(to.ID), name, `"root"`)) != 2 {
				t.Errorf("%d to %d is not audited for both", i, j)
			}
		}
	}
	isAsleep(t, m, chats[1])
	for i, from := range chats {
		to := chats[(i+1)%len(chats)]
		for _, s := range []chat.Share{
			{Path: ".env", To: to.ID, ToPath: "new/x"}, {Path: "d/f", To: to.ID, ToPath: "new/.env"}, {Path: "d/f", To: to.ID, ToPath: "ro/x"},
			{Path: "d/f", To: to.ID, ToPath: from.Home + "/x"}, {Path: to.Home + "/d/f", To: to.ID, ToPath: "new/x"},
		} {
			expect.Is(t, expect.Err(m.Share(ctx, from.ID, s)), chat.ErrDenied, "%+v", s)
		}
		for _, s := range []chat.Share{{Path: "d", To: to.ID}, {Path: "d/f", To: from.ID}, {Path: "d/f", To: to.ID, ToPath: "d"}} {
			expect.Is(t, expect.Err(m.Share(ctx, from.ID, s)), chat.ErrInvalid, "%+v", s)
		}
		expect.Is(t, expect.Err(m.Share(ctx, from.ID, chat.Share{Path: "missing", To: to.ID, ToPath: "new/x"})), chat.ErrNotFound,
			"what is not there")
		left, _ := filepath.Glob(filepath.Join(to.Home, "new*"))
		expect.True(t, len(left) == 0, "left %v", left)
		left, _ = filepath.Glob(filepath.Join(to.Home, "*/.tmp-*"))
		expect.True(t, len(left) == 0, "left %v", left)
	}
}

// TestShareCrosswise: two chats that are asleep share with each other simultaneously, many times,
// without a deadlock.
func TestShareCrosswise(t *testing.T) {
	m := open(t, options(t))
	a, b := asleep(t, m, "cross a"), asleep(t, m, "cross b")
	put(t, m, a.ID, "f", "a")
	put(t, m, b.ID, "g", "b")
	must.Do(t, within(t, "shares", func() error {
		var all errgroup
		for range 4 {
			all.Go(func() error {
				return expect.Err(m.Share(operator(t.Context()), a.ID, chat.Share{Path: "f", To: b.ID}))
			})
			all.Go(func() error {
				return expect.Err(m.Share(operator(t.Context()), b.ID, chat.Share{Path: "g", To: a.ID}))
			})
		}
		return all.Wait()
	}))
	isAsleep(t, m, a)
	isAsleep(t, m, b)
}

// errgroup joins the errors of what is done at the same time.
type errgroup struct {
	sync.WaitGroup
	mu   sync.Mutex
	errs error
}

// Go does f at the same time as the others.
func (g *errgroup) Go(f func() error) {
	g.WaitGroup.Go(func() {
		err := f()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.errs = errors.Join(g.errs, err)
	})
}

// Wait waits for all.
func (g *errgroup) Wait() error { g.WaitGroup.Wait(); return g.errs }
