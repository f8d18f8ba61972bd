package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// Exec runs one command inside the session, as the chat, with stdin, and
// returns what it printed. A command that ends with another code than 0 is an
// error that carries its message.
type Exec func(ctx context.Context, stdin []byte, argv []string) (stdout []byte, err error)

// Terminal is a client's view of a chat's tmux server.
type Terminal struct {
	socket string
	exec   Exec
	// buffers counts paste buffers, so that two callers at once never share one.
	buffers atomic.Uint64
}

// New returns the terminal whose server listens on socket, a path in the
// session's view.
func New(socket string, exec Exec) *Terminal {
	return &Terminal{socket: socket, exec: exec}
}

// ErrKey is returned for a key name that tmux(1) does not know. tmux itself
// would type the unknown name as text.
var ErrKey = errors.New("no such key")

// Type types text as it is, then Enter if enter is set. The text goes in as a
// paste buffer over the client's stdin, so no byte of it is ever an argument, a
// key name or a tmux command. A program that asked for bracketed paste gets it
// bracketed (paste-buffer -p); in other programs a line feed arrives as Enter.
func (t *Terminal) Type(ctx context.Context, text string, enter bool) error {
	var argv []string
	if text != "" {
		buffer := fmt.Sprintf("chatd-%d", t.buffers.Add(1))
		argv = append(argv, "load-buffer", "-b", buffer, "-", ";",
			"paste-buffer", "-d", "-p", "-b", buffer, "-t", target)
	}
	if enter {
		if len(argv) > 0 {
			argv = append(argv, ";")
		}
		argv = append(argv, "send-keys", "-t", target, "Enter")
	}
	_, err := t.client(ctx, []byte(text), argv)
	return err
}

// Press presses keys by name, in order. A name that is not a key is [ErrKey],
// and then none is pressed.
func (t *Terminal) Press(ctx context.Context, keys []string) error {
	named := make([]string, len(keys))
	for i, k := range keys {
		var known bool
		if named[i], known = KeyName(k); !known {
			return fmt.Errorf("cannot press %q: want names as in ctrl-c, alt-x, up, enter, f1, or those of tmux(1): %w", k, ErrKey)
		}
	}
	_, err := t.client(ctx, nil, append([]string{"send-keys", "-t", target, "--"}, escapeKeys(named)...))
	return err
}

// escapeKeys keeps a lone ";" from ending the tmux command it stands in.
func escapeKeys(keys []string) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		if strings.HasSuffix(k, ";") {
			k = strings.TrimSuffix(k, ";") + `\;`
		}
		out[i] = k
	}
	return out
}

// Screen is what the active pane shows: Rows × Cols cells, the visible lines
// without trailing blank ones, and the cursor counted from 0.
type Screen struct {
	Rows, Cols           int
	CursorRow, CursorCol int
	Text                 string
}

const screenFormat = "#{pane_height} #{pane_width} #{cursor_y} #{cursor_x}"

// Screen reads what the terminal shows now, with escape sequences for colours and more
// if styles is set.
func (t *Terminal) Screen(ctx context.Context, styles bool) (Screen, error) {
	argv := []string{"display-message", "-p", "-t", target, screenFormat, ";", "capture-pane", "-p", "-t", target}
	if styles {
		argv = append(argv, "-e")
	}
	out, err := t.client(ctx, nil, argv)
	if err != nil {
		return Screen{}, err
	}
	return parseScreen(out)
}

func parseScreen(out []byte) (Screen, error) {
	head, text, _ := bytes.Cut(out, []byte("\n"))
	var s Screen
	if _, err := fmt.Sscanf(string(head), "%d %d %d %d", &s.Rows, &s.Cols, &s.CursorRow, &s.CursorCol); err != nil {
		return Screen{}, fmt.Errorf("cannot read the screen: tmux answered %.80q", head)
	}
	s.Text = strings.TrimRight(string(text), "\n")
	return s, nil
}

func (t *Terminal) client(ctx context.Context, stdin []byte, args []string) ([]byte, error) {
	out, err := t.exec(ctx, stdin, append([]string{Program, "-S", t.socket}, args...))
	if err != nil {
		return nil, fmt.Errorf("cannot reach the terminal: %w", err)
	}
	return out, nil
}
