package runs

import (
	"context"
	"strings"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/test/expect"
)

// Plan is the view of a session.
func (r *fake) Plan(ctx context.Context, _ chat.ID) (chat.Plan, error) {
	if chat.CallerFrom(ctx).Role != chat.RoleOperator {
		return chat.Plan{}, chat.ErrDenied
	}
	bind := func(at string, mode chat.Mode, by string) chat.Mount {
		return chat.Mount{Type: chat.MountBind, Target: at, Mode: mode, By: by}
	}
	return chat.Plan{
		Profile: "p", Network: r.network,
		Mounts: []chat.Mount{
			{Type: chat.MountTmpfs, Target: "/", Mode: chat.ReadOnly}, bind("/usr", chat.ReadOnly, ""),
			{Type: chat.MountLink, Source: "usr/bin", Target: "/bin"}, {Type: chat.MountDir, Target: "/etc", Mode: chat.ReadOnly},
			{Type: chat.MountFile, Target: "/etc/passwd", Mode: chat.ReadOnly}, {Type: chat.MountDev, Target: "/dev", Mode: chat.ReadOnly},
			bind("/tmp", chat.ReadWrite, ""), bind("/home/u", chat.ReadWrite, ""), bind("/data", chat.ReadOnly, "expose_paths[0]"),
		},
		Landlock: []chat.PathRight{
			{Right: "read", Path: "/etc"}, {Right: "exec", Path: "/usr"}, {Right: "write", Path: "/home/u"}, {Right: "write", Path: "/tmp"},
			{Right: "devices", Path: "/dev/null"}, {Right: "read", Path: "/data"},
		},
	}, nil
}

// TestExplainNamesAllThatDeny: the one that denies first is in front, and each says which key opens
// it, or that none does.
func TestExplainNamesAllThatDeny(t *testing.T) {
	byRule := chat.Explained{Verdict: "deny", Rule: "deny /etc", Place: "rules.yaml:3"}
	for _, c := range []struct {
		q       chat.Question
		answer  chat.Explained
		network chat.Network
		want    string // who denies, with a part of the fix of each
		why     string
	}{
		{q: chat.Question{Path: "/etc/shadow", Op: "write"}, want: "workspace: allow_write_paths of profile p, view: expose_paths of profile p"},
		{q: chat.Question{Path: "/etc/passwd", Op: "write"}, answer: byRule, want: "rules: rules.yaml:3, workspace: allow_write_paths, view: no setting"},
		{q: chat.Question{Path: "/etc/passwd", Op: "bash"}},
		{q: chat.Question{Path: "/bin/ls", Op: "bash"}},
		{q: chat.Question{Path: "f", Op: "write"}},
		{q: chat.Question{Path: "~/f", Op: "edit"}, answer: chat.Explained{Refused: "w"}, want: "view: chmod"},
		{q: chat.Question{Path: "~/f", Op: "read"}, answer: chat.Explained{Refused: "w"}},
		{q: chat.Question{Path: "~/link", Op: "read"}, answer: chat.Explained{Real: "/root/x"}, want: "workspace: allow_read_paths, view: expose_paths"},
		{q: chat.Question{Path: "/data/f", Op: "write"}, want: "workspace: allow_write_paths, view: expose_paths[0]"},
		{q: chat.Question{Command: "cat /root/x >/dev/null"}, want: "view: expose_paths"},
		{q: chat.Question{Command: "cat /etc/passwd >/data/f"}, want: "view: expose_paths[0]"},
		{q: chat.Question{Command: "cat /etc/passwd >f"}},
		{q: chat.Question{Command: "sudo cat /etc/passwd"}, answer: byRule, want: "guard: guard.custom_allow_patterns, rules: rules.yaml:3"},
		{q: chat.Question{Command: "curl https://x"}, network: chat.NetworkNone, why: "this chat has no network"},
		{q: chat.Question{Command: "curl https://x"}, network: chat.NetworkOwn},
		{q: chat.Question{Host: "x", Port: 443}, answer: chat.Explained{Verdict: "deny", Name: "x:443", Why: "it is not listed"},
			network: chat.NetworkOwn, want: "egress: add x:443 to egress of profile p", why: "it is not listed"},
		{q: chat.Question{Host: "x", Port: 443}, answer: chat.Explained{Verdict: "deny", Name: "x:443", Why: "the profile has network none"},
			network: chat.NetworkNone, want: "egress: network: own and egress: [x:443]", why: "network none"},
	} {
		r := &fake{terms: guarded(false), answer: c.answer, network: c.network}
		e, err := opened(t, r, noon()).Explain(t.Context(), "a", c.q)
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, ", ")
		}
		ok := err == nil && len(want) == len(e.DeniedBy) && (e.Verdict == "deny") == (c.want != "") && strings.Contains(e.Why, c.why) && (c.why != "") == (e.Why != "")
		for i := range min(len(want), len(e.DeniedBy)) {
			by, fix, _ := strings.Cut(want[i], ": ")
			ok = ok && e.DeniedBy[i].By == by && strings.Contains(e.DeniedBy[i].Fix, fix) && e.DeniedBy[i].Why != ""
		}
		expect.True(t, ok, "%+v\n got %+v, why %q, %v\nwant %s", c.q, e.DeniedBy, e.Why, err, c.want)
	}
}
