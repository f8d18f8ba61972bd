package roottest

import (
	"context"
	"maps"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/front/api/apitest"
	"github.com/chatd/chatd/test/expect"
	"github.com/chatd/chatd/test/must"
)

// TestLabels: labels change as apitest says, through the manager and through the API of a
// daemon, and hold after a restart.
func TestLabels(t *testing.T) {
	t.Run("manager", func(t *testing.T) {
		opt := options(t)
		m := open(t, opt)
		apitest.Labels(operator(t.Context()), t, m)
	})
	t.Run("client", func(t *testing.T) {
		opt := options(t)
		d := startDaemon(t, opt, "")
		c := apitest.Labels(t.Context(), t, d)
		before := must.Get(d.Get(t.Context(), c.ID))(t)
		d.kill()
		d = startDaemon(t, opt, "")
		after := must.Get(d.Get(t.Context(), c.ID))(t)
		expect.True(t, len(after.Labels) != 0 && maps.Equal(after.Labels, before.Labels),
			"after kill -9: %v, before: %v", after.Labels, before.Labels)
		must.Do(t, d.Reap(t.Context(), c.ID))
	})
}

// TestLabelsAreAudited: a change has its line, with the names of the labels and not what they
// say, and another bridge's chat is not found.
func TestLabelsAreAudited(t *testing.T) {
	opt := options(t)
	m := open(t, opt)
	ctx := operator(t.Context())
	c := asleep(t, m, "audited")
	value := "a secret of the caller"
	must.Get(m.Patch(ctx, c.ID, chat.Patch{Labels: map[string]*string{"colour": &value, "size": nil}}))(t)
	if got := auditLines(t, opt, `"patch"`, `"done"`, string(c.ID), `"label.colour":"set"`, `"label.size":"removed"`, `"root"`); len(got) != 1 {
		t.Errorf("%d lines in the audit log: %q", len(got), got)
	}
	if got := auditLines(t, opt, value); len(got) > 0 {
		t.Errorf("the audit log has the value: %q", got)
	}
	denied(t, m, c)
}

func denied(t *testing.T, m *manager, c chat.Chat) {
	t.Helper()
	other := chat.WithCaller(context.Background(), chat.Caller{UID: 4711, Name: "other", Role: chat.RoleBridge})
	expect.Is(t, expect.Err(m.Patch(other, c.ID, chat.Patch{NoLabels: true})), chat.ErrNotFound,
		"another's chat")
	if got, err := m.Get(operator(t.Context()), c.ID); err != nil || got.Labels["colour"] == "" {
		t.Errorf("another took its labels: %v %v", got.Labels, err)
	}
}
