package apitest

import (
	"context"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// InputWait types, and answers what was typed as what was printed. The exit code is 0, 1 after
// a text that begins with "false"; one that begins with "sleep" takes as long as it may.
func (m *Memory) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	before, err := m.Log(ctx, id, 0)
	if err == nil {
		err = m.Input(ctx, id, in)
	}
	if err != nil {
		return chat.Typed{}, err
	}
	l, err := m.Log(ctx, id, before.End)
	t := chat.Typed{Log: l, Plain: strings.ReplaceAll(string(l.Bytes()), "\x1b[31m", ""), Program: "bash",
		Until: in.Wait.Until}
	switch exit := 0; {
	case strings.HasPrefix(in.Text, "sleep"):
		t.Until = chat.UntilMax
	case in.Wait.Until == chat.UntilPrompt:
		if strings.HasPrefix(in.Text, "false") {
			exit = 1
		}
		t.Exit = &exit
	}
	return t, err
}

// ScreenWith is Screen in green with styles, and below its history.
func (m *Memory) ScreenWith(ctx context.Context, id chat.ID, spec chat.ScreenSpec) (chat.Screen, error) {
	s, err := m.Screen(ctx, id)
	for range spec.History {
		s.Text = "before\n" + s.Text
	}
	s.History = spec.History
	if spec.Styles {
		s.Text = "\x1b[32m" + s.Text + "\x1b]0;title\a"
	}
	return s, err
}

// Log is what was typed.
func (m *Memory) Log(ctx context.Context, id chat.ID, since int64) (chat.Log, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.reach(ctx, id)
	if err != nil {
		return chat.Log{}, err
	}
	text := m.screens[id]
	if since > int64(len(text)) {
		return chat.Log{}, chat.Invalid("cannot read the log of chat %s: cursor %d: it ends at %d", id,
			since, len(text))
	}
	since = max(0, since)
	l := chat.Log{From: since, Cursor: int64(len(text)), End: int64(len(text)), Recording: c.Awake}
	l.SetBytes([]byte(text[since:]))
	return l, nil
}

// FollowLog looks for more every few milliseconds.
func (m *Memory) FollowLog(ctx context.Context, id chat.ID, since int64, out func(chat.Log) error) error {
	for first := true; ; first = false {
		l, err := m.Log(ctx, id, since)
		if err != nil {
			return err
		}
		if since = l.Cursor; first || l.From < l.Cursor {
			if err := out(l); err != nil {
				return err
			}
		}
		if why := chat.Sleep(ctx, 5*time.Millisecond); why != nil {
			return why
		}
	}
}
