package tmux

import (
	"fmt"
	"strconv"
	"strings"
)

// Session is the name of the one tmux session a chat starts with.
const Session = "chat"

// target is the active pane of that session; "=" asks for the exact name, so
// that a chat's own session chat2 is never typed into by prefix match.
const target = "=" + Session + ":"

// Size of a new terminal in cells.
const (
	Cols = 120
	Rows = 40
)

// HistoryLimit is how many lines of scrollback a pane keeps; each costs the
// chat's own memory limit, at most a few hundred bytes.
const HistoryLimit = 2000

// Config is the server's configuration file. shell is the command line of the
// first shell, made of words that need no quoting.
//
// The first shell is given as words, which tmux runs without a /bin/sh between;
// default-command serves the windows that the chat opens itself. window-size
// manual is left out: tmux 3.3a dies of it at its first client. exit-empty comes after new-session: tmux -D turns it off, and a server whose
// last shell ended must end too, for then the chat is asleep.
func Config(shell []string) []byte {
	lines := []string{
		"set -g default-command " + strconv.Quote("exec "+strings.Join(shell, " ")),
		"set -g default-terminal screen-256color",
		fmt.Sprintf("set -g history-limit %d", HistoryLimit),
		"set -g status off",
		"set -g update-environment ''",
		"set -g allow-rename off",
		fmt.Sprintf("set -g default-size %dx%d", Cols, Rows),
		"set -s escape-time 0",
		"set -s set-clipboard off",
		fmt.Sprintf("new-session -d -s %s -x %d -y %d -- %s", Session, Cols, Rows, strings.Join(shell, " ")),
		"set -s exit-empty on",
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// ServerArgv is the server's command line: in the foreground, with socket and
// configuration at the given paths of the session's view.
func ServerArgv(socket, config string) []string {
	return []string{"tmux", "-D", "-f", config, "-S", socket}
}
