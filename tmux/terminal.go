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

	"github.com/chatd/chatd/chat"
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

// Screen is what the active pane shows, with how many lines were scrolled away of it.
type Screen struct {
	chat.Screen
	HistorySize int
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
	var err error
	s.Text = strings.TrimRight(string(text), "\n")
	s.Program, err = numbers(string(head), &s.Rows, &s.Cols, &s.CursorRow, &s.CursorCol, &s.HistorySize)
	if err != nil {
		return Screen{}, fmt.Errorf("cannot read the screen: tmux answered %.80q", head)
	}
	return s, nil
}

// numbers reads numbers with a blank after each, and returns the rest of the line.
func numbers(line string, into ...*int) (rest string, err error) {
	for _, n := range into {
		word, rest, found := strings.Cut(line, " ")
		if *n, err = strconv.Atoi(word); err != nil || !found {
			return "", errors.Join(err, errors.New("too few words"))
		}
		line = rest
	}
	return line, nil
}

func (t *Terminal) client(ctx context.Context, stdin []byte, args []string) ([]byte, error) {
	out, err := t.exec(ctx, stdin, append([]string{Program, "-S", t.socket}, args...))
	if err != nil {
		return nil, fmt.Errorf("cannot reach the terminal: %w", err)
	}
	return out, nil
}

// Keep lets the server write the state of the terminal to a file of the chat's, for the next shell:
// its size in columns and rows, a line end, the working directory of the shell in front, a null
// byte, and its text with colours, up to [HistoryLimit] lines of it before the screen.
// file is a word for sh. All of it is the chat's. The caller bounds how long it takes.
//
// The server runs it, not a client: a client comes from outside of the session, and Landlock does
// not show it the working directory of a process inside.
func (t *Terminal) Keep(ctx context.Context, file string) error {
	_, err := t.client(ctx, nil, []string{"run-shell", "-t", target, keepScript(file)})
	return err
}

// keepScript has no # but those of tmux's formats, which are numbers and the socket's path.
func keepScript(file string) string {
	return `umask 077
{
	cd -P /proc/#{pane_pid}/cwd && dir=$(pwd -P; echo .) &&
	printf '%s %s\n%s\000' #{window_width} #{window_height} "${dir%?.}" &&
	` + Program + ` -S #{socket_path} capture-pane -p -e -t #{pane_id} -S -` +
		strconv.Itoa(HistoryLimit) + `
} 2>/dev/null >` + file + ` || :`
}
