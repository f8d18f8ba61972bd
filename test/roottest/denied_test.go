package roottest

import (
	"slices"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/must"
)

// TestRunsSayWhatWasRefused: the answer of a run, and of a background run, names each file that the
// rules refused a program meanwhile, with the rule, once; the next run has none of it.
func TestRunsSayWhatWasRefused(t *testing.T) {
	opt := ruledOptions(t, "access:\n  useDefaults: false\n  deny: ['**/*.pem']\n")
	m := open(t, opt)
	defer endEnforcer(t, opt)
	c := sleeper(t, m, "refused runs")
	putFile(t, c, "old.pem", secret)
	wake(t, m, c.ID)
	const command = "for i in 1 2 3; do cat old.pem; done; echo x >new.pem; cat new.pem; true"
	want := []chat.Denied{
		{Op: "open", Path: c.Home + "/old.pem", Rule: "deny **/*.pem"}, {Op: "open", Path: c.Home + "/new.pem", Rule: "deny **/*.pem"},
	}
	if got := run(t, m, c.ID, command); !slices.Equal(got.Denied, want) {
		t.Errorf("a run: %+v", got.Denied)
	}
	if got := run(t, m, c.ID, "echo"); len(got.Denied) > 0 {
		t.Errorf("the next run: %+v", got.Denied)
	}
	ctx := operator(t.Context())
	r := must.Get(m.StartRun(ctx, c.ID, chat.RunSpec{Command: command}))(t)
	until(t, "the background run ends", func() bool {
		all := must.Get(m.Runs(ctx, c.ID))(t)
		for _, one := range all.Runs {
			if one.ID == r.ID {
				r = one
			}
		}
		return r.Result != nil
	})
	if !slices.Equal(r.Result.Denied, want) {
		t.Errorf("a background run: %+v", r.Result.Denied)
	}
}

// TestRunsSayWhatEgressRefused: so of names and ports that the egress does not open.
func TestRunsSayWhatEgressRefused(t *testing.T) {
	newInternet(t)
	m := open(t, named(t, usual...))
	a := inmateOf(t, m, "refused egress", "named")
	must.Get(m.Wake(operator(t.Context()), a.ID))(t)
	var got chat.RunResult
	until(t, "chatd-egress has started and answers", func() bool {
		got = run(t, m, a.ID, "getent hosts other.example.test; true")
		return len(got.Denied) > 0
	})
	want := chat.Denied{Op: "connect", Host: "next.example.test"}
	if got = run(t, m, a.ID, "getent hosts next.example.test; true"); !slices.Contains(got.Denied, want) {
		t.Errorf("%+v, want %+v", got.Denied, want)
	}
}
