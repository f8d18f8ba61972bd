package front

import (
	"context"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/termsafe"
	"github.com/chatd/chatd/internal/verbs"
)

// terminals are chats whose terminals are rendered as text. chatd-root passes on a terminal's
// output and does not parse it: it says where a command's output lies in the log
// ([chat.Typed].Output), and returns a screen with styles unchanged from tmux (adrs/0039).
type terminals struct{ verbs.Chats }

// RenderTerminals returns chats with their terminals rendered by package termsafe. A screen without
// styles and the log pass unchanged: the command line makes those safe for an operator's terminal.
func RenderTerminals(chats verbs.Chats) verbs.Chats { return terminals{chats} }

// InputWait is [verbs.Chats], with Plain rendered.
func (c terminals) InputWait(ctx context.Context, id chat.ID, in chat.Input) (chat.Typed, error) {
	t, err := c.Chats.InputWait(ctx, id, in)
	if err == nil && t.Output != nil {
		t.Plain, t.Output = termsafe.Render(between(t.Log, *t.Output), t.Output.Rows, t.Output.Cols), nil
	}
	return t, err
}

// between is what of the piece lies between two cursors.
func between(l chat.Log, s chat.Span) []byte {
	p := l.Bytes()
	from := min(max(0, s.From-l.From), int64(len(p)))
	return p[from:min(max(from, s.To-l.From), int64(len(p)))]
}

// ScreenWith is [verbs.Chats]. With styles the text has colours and the like, and no other
// sequence.
func (c terminals) ScreenWith(
	ctx context.Context, id chat.ID, spec chat.ScreenSpec,
) (chat.Screen, error) {
	s, err := c.Chats.ScreenWith(ctx, id, spec)
	if spec.Styles {
		s.Text = termsafe.String(s.Text, termsafe.Styled)
	}
	return s, err
}
