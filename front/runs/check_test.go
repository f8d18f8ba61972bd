package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

func (r *fake) Terms(ctx context.Context, _ chat.ID) (chat.Terms, error) { return r.terms(ctx) }

func (r *fake) RefuseRun(_ context.Context, _ chat.ID, d chat.RefusedRun) error {
	r.refused = append(r.refused, d)
	return nil
}

func (r *fake) Run(
	_ context.Context, _ chat.ID, s chat.RunSpec, _ verbs.Begun,
) (chat.RunResult, error) {
	r.ran = append(r.ran, s)
	return chat.RunResult{}, nil
}

func (r *fake) StartRun(ctx context.Context, id chat.ID, s chat.RunSpec) (chat.Run, error) {
	_, err := r.Run(ctx, id, s, nil)
	return chat.Run{}, err
}

func (r *fake) Explain(ctx context.Context, _ chat.ID, q chat.Question) (chat.Explained, error) {
	if r.hangs != nil {
		r.hangs <- struct{}{}
		<-ctx.Done()
		return chat.Explained{}, ctx.Err()
	}
	r.asked = append(r.asked, q)
	e := r.answer
	e.Verdict, e.Name = cmp.Or(e.Verdict, "allow"), cmp.Or(e.Name, q.Path)
	for _, n := range q.Named {
		e.Paths = append(e.Paths, n.Text)
	}
	return e, nil
}

// guarded are terms with a guard of custom patterns, as they come over the wire.
func guarded(off bool, allow ...string) func(context.Context) (chat.Terms, error) {
	g := chat.DefaultGuard()
	g.CustomDenyPatterns = []chat.Pattern{{Text: "^secret", Place: "chatd.yaml:7"}}
	for _, a := range allow {
		g.CustomAllowPatterns = append(g.CustomAllowPatterns, chat.Pattern{Text: a})
	}
	return func(context.Context) (chat.Terms, error) {
		return chat.Terms{Home: "/home/u", ExecOff: off, Guard: g, Places: g.Places()}, nil
	}
}

// ways are the ways of a command to chatd-root.
func ways(c *Chats) map[string]func(context.Context, chat.RunSpec) error {
	return map[string]func(context.Context, chat.RunSpec) error{
		"a run":        func(ctx context.Context, s chat.RunSpec) error { _, err := c.Run(ctx, "a", s); return err },
		"a stream":     func(ctx context.Context, s chat.RunSpec) error { _, err := c.RunTo(ctx, "a", s, nil); return err },
		"a background": func(ctx context.Context, s chat.RunSpec) error { _, err := c.StartRun(ctx, "a", s); return err },
		"a schedule": func(ctx context.Context, s chat.RunSpec) error {
			_, err := c.AddSchedule(ctx, "a", chat.ScheduleSpec{Every: chat.MinEvery, Command: s.Command, Argv: s.Argv, Cwd: s.Cwd})
			return err
		},
	}
}

// TestGuardChecksRuns: a command that the guard refuses never reaches chatd-root, by any way in,
// and is reported for the audit log; one that it lets pass goes down with the paths that it names.
func TestGuardChecksRuns(t *testing.T) {
	for _, name := range []string{"a run", "a stream", "a background", "a schedule"} {
		t.Run(name, func(t *testing.T) {
			r := &fake{terms: guarded(false)}
			try := ways(opened(t, r, noon()))[name]
			for _, s := range []chat.RunSpec{{Command: "cd /tmp; sudo id"}, {Argv: []string{"sudo", "id"}}, {Command: "secret /etc/x"}} {
				r.refused = nil
				err := try(t.Context(), s)
				var d *chat.RunDenial
				if !errors.Is(err, chat.ErrDenied) || !errors.As(err, &d) || d.Rule == "" || len(r.ran) > 0 {
					t.Fatalf("%v: %v, and went down: %v", s, err, r.ran)
				}
				if len(r.refused) != 1 || fmt.Sprint(r.refused[0].Argv) != fmt.Sprint(s.CommandLine()) || r.refused[0].Denial != *d {
					t.Errorf("%v: reported %+v", s, r.refused)
				}
			}
			p := r.refused[0].Denial.Place
			expect.True(t, p == "chatd.yaml:7", "the place of a custom pattern is %q", p)
			for want, s := range map[string]chat.RunSpec{
				"[{/home/u/w/x false} {/etc/p* true}]": {Command: "cat x /etc/p*; cat ~/w/x", Cwd: "w"},
				"[{/home/u/./~/x false}]":              {Argv: []string{"cat", "~/x"}},
				"[{/home/u/x false}]":                  {Command: "cat x; (("},
			} {
				r.ran = nil
				err := try(t.Context(), s)
				if strings.Contains(s.Command, "((") { // no bash: it cannot be checked
					expect.True(t, errors.Is(err, chat.ErrInvalid) && len(r.ran) <= 0,
						"%v: %v, %v", s, err, r.ran)
				} else if err != nil || len(r.ran) != 1 || fmt.Sprint(r.ran[0].Named) != want {
					t.Errorf("%v: %v, names %v, want %s", s, err, r.ran, want)
				}
			}
		})
	}
}

// TestRunsNotChecked: nothing is read of a command that the profile has no guard for, or that
// chatd-root refuses anyway; a chat that is not there refuses it.
func TestRunsNotChecked(t *testing.T) {
	for what, terms := range map[string]func(context.Context) (chat.Terms, error){
		"no guard": func(context.Context) (chat.Terms, error) { return chat.Terms{Home: "/home/u"}, nil }, "exec off": guarded(true),
	} {
		r := &fake{terms: terms}
		if err := ways(opened(t, r, noon()))["a run"](t.Context(), chat.RunSpec{Command: "sudo cat /x"}); err != nil || len(r.ran) != 1 || r.ran[0].Named != nil {
			t.Errorf("%s: %v, %+v", what, err, r.ran)
		}
	}
	r := &fake{terms: func(context.Context) (chat.Terms, error) { return chat.Terms{}, chat.NoChat("a") }}
	for what, try := range ways(opened(t, r, noon())) {
		if err := try(t.Context(), chat.RunSpec{Command: "true"}); !errors.Is(err, chat.ErrNotFound) || len(r.ran) > 0 {
			t.Errorf("%s in a chat that is not there: %v, %v", what, err, r.ran)
		}
	}
}

// TestGuardChanges: after a reload the next command is checked by the new guard; what was compiled
// of old ones is bounded.
func TestGuardChanges(t *testing.T) {
	r := &fake{}
	c := opened(t, r, noon())
	for i := range 3 * maxGuards {
		r.terms = guarded(false, fmt.Sprintf("sudo id %d", i))
		must.Do(t, ways(c)["a run"](t.Context(), chat.RunSpec{Command: fmt.Sprintf("sudo id %d", i)}))
		err := ways(c)["a run"](t.Context(), chat.RunSpec{Command: fmt.Sprintf("sudo id %d", i+1)})
		must.True(t, errors.Is(err, chat.ErrDenied), "by the guard before: %v", err)
	}
	n := len(c.guards.last)
	expect.True(t, n <= maxGuards, "%d compiled guards are kept", n)
}

// TestExplainCommand: the file rules are asked about the paths of a command, and the guard about
// the command.
func TestExplainCommand(t *testing.T) {
	r := &fake{terms: guarded(false)}
	c := opened(t, r, noon())
	e, err := c.Explain(t.Context(), "a", chat.Question{Command: "sudo cat ~/x"})
	if err != nil || e.Guard == nil || e.Guard.Verdict != "deny" || fmt.Sprint(r.asked[0].Named) != "[{/home/u/x false}]" {
		t.Errorf("%+v, %v, asked %+v", e.Guard, err, r.asked)
	}
	if _, err := c.Explain(t.Context(), "a", chat.Question{Command: "cat x; (("}); !errors.Is(err, chat.ErrInvalid) {
		t.Errorf("no bash: %v", err)
	}
	if e, err := c.Explain(t.Context(), "a", chat.Question{Path: "x", Op: "read"}); err != nil || e.Guard != nil {
		t.Errorf("a path: %+v, %v", e, err)
	}
}

// TestDueRunIsChecked: a due run is checked as its creator's, by the guard of that moment. What is
// refused, or cannot be checked, is written down below and does not run.
func TestDueRunIsChecked(t *testing.T) {
	by := chat.Caller{Name: "ada", Role: chat.RoleBridge}
	for what, c := range map[string]struct {
		terms func(context.Context) (chat.Terms, error)
		want  string
		rule  string
	}{
		"refused":           {guarded(false), "dangerous pattern", "privileges"},
		"cannot be checked": {func(context.Context) (chat.Terms, error) { return chat.Terms{}, chat.ErrBusy }, "busy", ""},
		"let pass":          {guarded(false, "sudo cat /etc/x"), "", ""},
	} {
		r, h := &fake{terms: c.terms}, noon()
		as := make(chan chat.Caller, 9)
		r.terms = func(ctx context.Context) (chat.Terms, error) { as <- chat.CallerFrom(ctx); return c.terms(ctx) }
		spec := chat.ScheduleSpec{Every: chat.MinEvery, Command: "sudo cat /etc/x"}
		r.kept = []chat.StoredSchedule{{
			Schedule: chat.Schedule{
				ID: "s", Spec: spec, CreatedAt: h.Now(), Next: new(h.Now().Add(time.Minute)),
			},
			Chat: "a", By: by,
		}}
		k := opened(t, r, h)
		k.Begin()
		h.move(time.Minute)
		r.await(t, "begin")
		k.Close()
		d := r.begun[0]
		got := <-as
		expect.True(t, got == by, "%s: checked as %+v", what, got)
		if c.want == "" {
			expect.True(t, d.Refused == nil && fmt.Sprint(d.Named) == "[{/etc/x false}]",
				"%s: %+v", what, d)
		} else if d.Refused == nil || !strings.Contains(d.Refused.Reason, c.want) || (d.Refused.Denial != nil) != (c.rule != "") || c.rule != "" && d.Refused.Denial.Rule != c.rule {
			t.Errorf("%s: %+v", what, d.Refused)
		}
	}
}

// TestChecksAreBounded: while the maximum of commands is read, one more waits, and goes when its
// caller does.
func TestChecksAreBounded(t *testing.T) {
	for range cap(checking) {
		checking <- struct{}{}
	}
	defer func() {
		for range cap(checking) {
			<-checking
		}
	}()
	r := &fake{terms: guarded(false)}
	c := opened(t, r, noon())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, explain := c.Explain(gone, "a", chat.Question{Command: "ls"})
	for what, err := range map[string]error{"a run": ways(c)["a run"](gone, chat.RunSpec{Command: "ls"}), "explain": explain} {
		expect.True(t, errors.Is(err, context.Canceled), "%s was checked beyond the bound: %v", what, err)
	}
}

// TestExplainTakesNoTurn: while chatd-root asks a chat about links, which does not answer, the
// commands of others are checked and run.
func TestExplainTakesNoTurn(t *testing.T) {
	r := &fake{terms: guarded(false), hangs: make(chan struct{})}
	c := opened(t, r, noon())
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range cap(checking) {
		all.Go(func() { _, _ = c.Explain(ctx, "a", chat.Question{Command: "cat ~/link"}) })
	}
	for range cap(checking) {
		<-r.hangs
	}
	n := len(checking)
	must.True(t, n <= 0, "%d turns are taken by what waits for a chat", n)
	err := ways(c)["a run"](ctx, chat.RunSpec{Command: "ls"})
	expect.True(t, err == nil && len(r.ran) == 1, "another's run: %v", err)
}
