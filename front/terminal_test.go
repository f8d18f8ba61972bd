package front

import (
	"context"
	"errors"
	"testing"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/internal/verbs"
	"github.com/chatd/chatd/tmux"
)

// TestSize: tmux may not import chat, and the command line and mcp not tmux.
func TestTerminalSize(t *testing.T) {
	if chat.TerminalRows != tmux.Rows || chat.TerminalCols != tmux.Cols {
		t.Errorf("chat has terminals of %d by %d, tmux makes them %d by %d",
			chat.TerminalRows, chat.TerminalCols, tmux.Rows, tmux.Cols)
	}
}

// fixedChats are chats whose answers are given.
type fixedChats struct {
	verbs.Chats
	typed  chat.Typed
	screen string
	err    error
}

func (f fixedChats) InputWait(context.Context, chat.ID, chat.Input) (chat.Typed, error) {
	return f.typed, f.err
}

func (f fixedChats) ScreenWith(context.Context, chat.ID, chat.ScreenSpec) (chat.Screen, error) {
	return chat.Screen{Text: f.screen}, f.err
}

func TestInputWait(t *testing.T) {
	const log = "$ x\r\n10%\r\x1b[31m100%\x1b[m\xff\r\n$ "
	piece := chat.Log{From: 1000, Cursor: 1000 + int64(len(log))}
	piece.SetBytes([]byte(log))
	for _, c := range []struct {
		what   string
		output *chat.Span
		want   string
	}{
		{"a command's output", &chat.Span{From: 1005, To: piece.Cursor - 2}, "100%\ufffd"},
		{"the whole", &chat.Span{From: piece.From, To: piece.Cursor}, "$ x\n100%\ufffd\n$"},
		{"output whose beginning is lost", &chat.Span{From: 7, To: 1003}, "$ x"},
		{"output that is all lost", &chat.Span{From: 7, To: 9}, ""},
		{"what is not there yet", &chat.Span{From: 1 << 40, To: 1 << 41}, ""},
		{"an end before its beginning", &chat.Span{From: 1010, To: 1005}, ""},
		{"what the terminal shows", nil, "the screen"},
	} {
		if c.output != nil {
			c.output.TTY = chat.TTY{Rows: 40, Cols: 120}
		}
		behind := chat.Typed{Log: piece, Plain: "the screen", Output: c.output}
		chats := RenderTerminals(fixedChats{typed: behind})
		got, err := chats.InputWait(t.Context(), "a", chat.Input{})
		if err != nil || got.Plain != c.want || got.Output != nil || string(got.Bytes()) != log {
			t.Errorf("%s is %+v, %v, want %q", c.what, got, err, c.want)
		}
	}
}

func TestScreen(t *testing.T) {
	const raw = "a\x1b]52;c;aGk=\a\x1b[31mred\x1b[m\x1b[2J"
	c := RenderTerminals(fixedChats{screen: raw})
	for styles, want := range map[bool]string{true: "a\x1b[31mred\x1b[m", false: raw} {
		s, err := c.ScreenWith(t.Context(), "a", chat.ScreenSpec{Styles: styles})
		if err != nil || s.Text != want {
			t.Errorf("with styles %t: %q, %v, want %q", styles, s.Text, err, want)
		}
	}
}

// TestErrors: what the chats behind refuse is refused.
func TestTerminalErrors(t *testing.T) {
	c := RenderTerminals(fixedChats{err: chat.ErrBusy})
	if _, err := c.InputWait(t.Context(), "a", chat.Input{}); !errors.Is(err, chat.ErrBusy) {
		t.Errorf("input: %v", err)
	}
	_, err := c.ScreenWith(t.Context(), "a", chat.ScreenSpec{Styles: true})
	if !errors.Is(err, chat.ErrBusy) {
		t.Errorf("screen: %v", err)
	}
}
