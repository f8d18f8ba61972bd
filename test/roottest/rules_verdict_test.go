package roottest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/filerules/rulefile"
	"github.com/chatd/chatd/internal/filewire"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestSeedSamplesHold: both samples of the seed as they are pasted, for each of their agents.
// What explain says of each rule is what the tools do, and what programs can do.
func TestSeedSamplesHold(t *testing.T) {
	opt := ruledOptions(t, "access: {}")
	for _, file := range []string{"sample1.json5", "sample2.json5"} {
		text := must.Get(os.ReadFile("../../filerules/rulefile/testdata/" + file))(t)
		p := must.Get(rulefile.Load(file, text))(t)
		name := strings.TrimSuffix(file, ".json5")
		edit(opt, name, func(p *chat.Profile) { p.Limits.CPUQuota = 2 * p.Limits.CPUPeriod })
		opt.FileRules[name] = p
	}
	m := open(t, opt)
	// A name for each rule of both, one below it, one beside it, and one of each later.
	names := []string{".ssh/config", ".ssh/id", ".ssh/d/e", ".sshd", ".gnupg/ring", ".gnupg/d/e", ".env", "deep/er/.env", ".envrc",
		"secrets/k", "a/secrets/b/c", "secrets.txt", "work/client/f", "work/client/d/e", "work/other", "plain"}
	for _, tt := range [][2]string{{"sample1", "main"}, {"sample1", "secrets-manager"}, {"sample1", "another"}, {"sample2", "main"}} {
		c := agentOf(t, m, tt[0], tt[1])
		for _, name := range names {
			putFile(t, c, name, secret)
		}
		wake(t, m, c.ID)
		denied := oneVerdict(t, m, c, names)
		if want := map[string]int{"sample1 main": 40, "sample2 main": 28}[tt[0]+" "+tt[1]]; want > 0 && denied < want {
			t.Errorf("%v: only %d verdicts are denials", tt, denied)
		}
		for i, name := range names {
			putFile(t, c, "later/"+name, secret)
			names[i] = "later/" + name
		}
		oneVerdict(t, m, c, names)
		for i := range names {
			names[i] = strings.TrimPrefix(names[i], "later/")
		}
	}
}

// agentOf is a chat of an agent that is asleep.
func agentOf(t testing.TB, m *manager, profile, agent string) chat.Chat {
	t.Helper()
	spec := chat.Spec{ExternalID: profile + " " + agent, Profile: profile, Agent: agent, Awake: new(false)}
	return must.First(m.Create(operator(t.Context()), spec))(t)
}

// oneVerdict has each name read, edited, appended to and written by a tool, and read and
// written by a program, and wants of each what explain says. It counts the denials.
func oneVerdict(t *testing.T, m *manager, c chat.Chat, names []string) (denied int) {
	t.Helper()
	ctx := operator(t.Context())
	// One run for all of them: a program meets the kernel alone.
	loop := `; do cat "$f" >/dev/null 2>&1; echo $?; done`
	cats := run(t, m, c.ID, "for f in "+strings.Join(names, " ")+loop)
	exits := strings.Fields(cats.Stdout)
	must.True(t, len(exits) == len(names), "%d names were read: %+v", len(names), cats)
	for i, name := range names {
		text := secret + "."
		does := map[string]func() error{
			"read": func() error {
				_, err := m.ReadFile(ctx, c.ID, filewire.ReadFile{Path: name}, func(filewire.Answer) io.Writer { return io.Discard })
				return err
			},
			"edit": func() error {
				return errorOf(m.EditFile(ctx, c.ID, filewire.EditFile{Path: name, OldText: secret, NewText: secret}))
			},
			"write": func() error {
				err := errorOf(m.AppendFile(ctx, c.ID, filewire.WriteFile{Path: name, Content: &text}, nil))
				if err != nil {
					return err
				}
				return errorOf(m.WriteFile(ctx, c.ID, filewire.WriteFile{Path: name, Content: &text}, nil))
			},
			"bash": func() error {
				if exits[i] != "0" {
					return fmt.Errorf("cat ended with %s", exits[i])
				}
				return nil
			},
		}
		for _, op := range []string{"read", "edit", "write", "bash"} {
			e, err := m.Explain(ctx, c.ID, chat.Question{Path: name, Op: op})
			must.Do(t, err)
			err = does[op]()
			expect.True(t, (e.Verdict == "allow") == (err == nil),
				"agent %s: %s of %s: explain says %+v, and then: %v", c.Agent, op, name, e, err)
			if e.Verdict == "deny" {
				denied++
				expect.True(t, e.Rule != "" && e.Place != "",
					"agent %s: %s of %s: denied by no rule: %+v", c.Agent, op, name, e)
			}
		}
	}
	return denied
}

// TestExceptions: what a rule opens within a closed or a read-only directory can be read and
// written by every tool and program, also where it came later; what a pattern closes is closed
// with all that is in it. Explain says so.
func TestExceptions(t *testing.T) {
	opt := ruledOptions(t, `
access: {useDefaults: false, deny: ["~/keys/**", "~/photos/*"], rules: [{deny: "~/ro/**", ops: [write, edit]}, {deny: "~/ledger", ops: [read]}, {deny: "~/half", ops: [write]}]}
agents: {main: {access: {rules: [{allow: "~/keys/pub.txt"}, {allow: "~/keys/pub/**"}, {allow: "~/keys/later.txt"}, {allow: "~/ro/rw.txt"}, {allow: "~/keys/only", ops: [read]}, {allow: "~/photos/open"}]}}}
`)
	m := open(t, opt)
	c := sleeper(t, m, "exceptions")
	names := []string{"keys/k", "keys/pub.txt", "keys/pub/d/f", "keys/only", "photos/a/b/c", "photos/open/f", "ro/f", "ro/rw.txt", "ledger", "half", "plain"}
	for _, name := range names {
		putFile(t, c, name, secret)
	}
	wake(t, m, c.ID)
	oneVerdict(t, m, c, names)
	for _, name := range []string{"keys/pub.txt", "ro/rw.txt"} {
		big := strings.Repeat("x", 3<<20)
		a, err := m.WriteFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: name, Stream: true}, strings.NewReader(big))
		expect.True(t, err == nil && a.Size == int64(len(big)) && !a.Created,
			"write of %s: %+v, %v", name, a, err)
		if a, err = m.AppendFile(operator(t.Context()), c.ID, filewire.WriteFile{Path: name, Stream: true}, strings.NewReader(big)); err != nil || a.Size != 2*int64(len(big)) {
			t.Errorf("append to %s: %+v, %v", name, a, err)
		}
		put(t, m, c.ID, name, secret)
		expect.Equal(t, tells(t, m, c, "cat %s; ls -a | grep -c tmp-", name), secret+"0\n",
			"%s says", name)
	}
	putFile(t, c, "keys/later.txt", secret)
	until(t, "an exception that comes later is open", func() bool { return tells(t, m, c, "cat keys/later.txt") == secret })
	oneVerdict(t, m, c, []string{"keys/later.txt", "keys/k"})
	e, err := front(t, m).Explain(operator(t.Context()), c.ID, chat.Question{Command: "cat ~/photos/a/b/c"})
	expect.True(t, err == nil && e.Verdict == "deny" && e.Rule == "deny ~/photos/*" && e.ByKernel,
		"a command below what a pattern closes: %+v, %v", e, err)
}
