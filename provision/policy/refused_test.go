package policy

import (
	"context"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/orders"
	"github.com/chatd/chatd/provision/enforcer"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestRefusedFile: a line about a refused open has the rule that closes the file, by the name that
// the enforcer knows.
func TestRefusedFile(t *testing.T) {
	w := newWorld(t, denySecret)
	secret := w.chat.Home + "/secret"
	line := w.refused(t.Context())
	for _, tt := range []struct {
		path, by string
		want     []string
	}{
		{secret, secret, []string{"open", "secret", "place:\"rules:", "by:the kernel", "times:3"}},
		{w.chat.Home + "/new", secret, []string{"name:", "secret", "place:"}},
		{w.chat.Home + "/new", "", []string{"rule:one about a name that it had"}},
		// A file too deep to have a path.
		{"", "", []string{"path:", "rule:one about a name that it had", "times:3"}},
	} {
		w.lines = nil
		line(enforcer.Refusal{Chat: w.chat.ID, Path: tt.path, By: tt.by, Times: 3})
		expect.True(t, len(w.lines) == 1 && w.audited(tt.want...),
			"%q by %q is audited as %q, want %q", tt.path, tt.by, w.lines, tt.want)
	}
	w.lines = nil
	line(enforcer.Refusal{Chat: w.chat.ID, Sum: true, Times: 3})
	expect.True(t, len(w.lines) == 1 && w.audited("more:3"), "a sum is audited as %q", w.lines)
	w.lines = nil
	line(enforcer.Refusal{Chat: "ffeeddccbbaa0099", Path: secret, By: secret, Times: 1})
	expect.True(t, w.lines == nil, "a chat that was reaped is audited: %q", w.lines)
}

// TestRefusalsAreHeard: who keeps runs hears of each refused file, also of one without a line in the
// audit log, with the rule; of terse rules neither file nor rule.
func TestRefusalsAreHeard(t *testing.T) {
	const terse = "access: {useDefaults: false, deny: [secret], messages: vague}"
	for _, rules := range []string{denySecret, terse} {
		w := newWorld(t, rules)
		secret := w.chat.Home + "/secret"
		w.refused(t.Context())(enforcer.Refusal{Chat: w.chat.ID, Path: secret, By: secret, Times: 1, Unsaid: true})
		want := chat.Denied{Op: "open", Path: secret, Rule: "deny ~/secret"}
		if rules == terse {
			want = chat.Denied{Op: "open"}
		}
		expect.True(t, len(w.denied) == 1 && w.denied[0] == want && len(w.lines) == 0,
			"by %s: %+v, and %q is audited", rules, w.denied, w.lines)
	}
}

// TestDropAudits: the refusals of a session that ends are audited before it is forgotten.
func TestDropAudits(t *testing.T) {
	w := newWorld(t, denySecret)
	secret := []byte(w.chat.Home + "/secret")
	w.answer = func(o orders.Order) orders.Answer {
		if o.Verb != orders.Refused {
			return orders.Answer{}
		}
		return orders.Answer{Refused: []orders.Refusals{{
			Chat: w.chat.ID, Files: []orders.RefusedFile{{Path: secret, By: secret, Times: 2}},
		}}}
	}
	w.listen()
	w.Began(w.chat.ID)
	must.Do(t, w.Drop(t.Context(), w.chat.ID))
	expect.True(t, w.audited(string(w.chat.ID), "open", "times:2"), "audited is %q", w.lines)
}

// TestAuditKeepsTheCaller: who ends a session is in the context of the lines about it.
func TestAuditKeepsTheCaller(t *testing.T) {
	w := newWorld(t, denySecret)
	type key struct{}
	var got any
	w.opt.Audit = func(ctx context.Context, _ chat.ID, _ string, _ map[string]string) {
		got = ctx.Value(key{})
	}
	ctx := context.WithValue(t.Context(), key{}, "ada")
	w.refused(ctx)(enforcer.Refusal{Chat: w.chat.ID, Sum: true, Times: 1})
	expect.True(t, got == "ada", "the context of the line has %v", got)
}
