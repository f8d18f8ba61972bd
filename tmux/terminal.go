package tmux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
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
	// buffers counts paste buffers, so that two simultaneous callers never share one.
	buffers atomic.Uint64
}

// New returns the terminal whose server listens on socket, a path in the
// session's view.
func New(socket string, exec Exec) *Terminal {
	return &Terminal{socket: socket, exec: exec}
}

// Screen is what the active pane shows: Rows × Cols cells, the visible lines
// without trailing blank ones, and the cursor counted from 0. The first History lines of Text
// were scrolled away.
type Screen struct {
	History, HistorySize int // those in Text, and all that there are
	Rows, Cols           int
	CursorRow, CursorCol int
	Program              string // the name of the program in front
	Text                 string
}

const screenFormat = "#{pane_height} #{pane_width} #{cursor_y} #{cursor_x} #{history_size} #{pane_current_command}"

// Form is the form of a screen's text, as options of capture-pane (tmux(1)).
type Form string

// The forms of a screen: rows; rows with escape sequences for colours and more; and lines as they
// were printed, where those that the terminal wraps are one, without blanks at their ends.
const (
	Plain   Form = "-p"
	Styled  Form = "-pe"
	Printed Form = "-pJ"
)

var blanks = regexp.MustCompile("(?m) +$")

// Screen reads what the terminal shows now, and this many lines before it.
func (t *Terminal) Screen(ctx context.Context, form Form, history int) (Screen, error) {
	argv := []string{"display-message", "-p", "-t", target, screenFormat, ";",
		"capture-pane", string(form), "-t", target}
	if history > 0 {
		argv = append(argv, "-S", strconv.Itoa(-history))
	}
	out, err := t.client(ctx, nil, argv)
	if err != nil {
		return Screen{}, err
	}
	if form == Printed {
		out = blanks.ReplaceAll(out, nil) // -J keeps them
	}
	s, err := parseScreen(out)
	s.History = max(0, min(history, s.HistorySize))
	return s, err
}

func parseScreen(out []byte) (Screen, error) {
	head, text, _ := bytes.Cut(out, []byte("\n"))
	var s Screen
	words := strings.SplitN(string(head), " ", 6)
	for i, n := range []*int{&s.Rows, &s.Cols, &s.CursorRow, &s.CursorCol, &s.HistorySize} {
		var err error
		if len(words) != 6 {
			err = errors.New("too few words")
		} else {
			*n, err = strconv.Atoi(words[i])
		}
		if err != nil {
			return Screen{}, fmt.Errorf("cannot read the screen: tmux answered %.80q", head)
		}
	}
	s.Program = words[5]
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
