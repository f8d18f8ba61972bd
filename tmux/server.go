package tmux

import (
	"fmt"
	"strconv"
	"strings"
)

// Session is the name of the one tmux session a chat starts with.
const Session = "chat"

// target is the active pane of that session; "=" requires the exact name, or a prefix match could
// type into the chat's own session chat2.
const target = "=" + Session + ":"

// Size of a new terminal in cells.
const (
	Cols = 120
	Rows = 40
)

// Term is the value of TERM; see terminfo(5). Every Debian with a shell has its entry
// (ncurses-base).
const Term = "tmux-256color"

// HistoryLimit is how many lines of scrollback a pane keeps; each takes at most a few
// hundred bytes of the chat's memory limit.
const HistoryLimit = 2000

// Config is the server's configuration file. shell is the command line of every window's shell, of
// words that need no quoting. log is an sh command, without quotes, to which the server pipes the
// output of each pane, from its first byte on, because hooks run before the server reads any
// output. Empty means none. The hook does not use pipe-pane -o, which closes an existing pipe.
//
// Each window has window-size manual, so that no client changes what it looks at: a smaller one
// sees a part. As a global option it crashes tmux 3.3a at its first client.
func Config(shell []string, log string) []byte {
	lines := []string{
		"set -g default-command " + strconv.Quote("exec "+strings.Join(shell, " ")),
		"set -g default-terminal " + Term,
		fmt.Sprintf("set -g history-limit %d", HistoryLimit),
		"set -g status off",
		"set -g update-environment ''",
		"set -g allow-rename off",
		fmt.Sprintf("set -g default-size %dx%d", Cols, Rows),
		"set -s escape-time 0",
		"set -s set-clipboard off",
		"set -as terminal-features ',*:RGB'",
		"set -s extended-keys on",
		"set -sq extended-keys-format csi-u", // not in 3.3a, which has this one alone
		"set -s focus-events on",
	}
	for _, made := range []string{"after-new-window", "after-split-window", "after-new-session"} {
		lines = append(lines, "set-hook -ga "+made+` "set -w window-size manual"`)
		if log != "" {
			lines = append(lines, "set-hook -ga "+made+` "pipe-pane '`+log+`'"`)
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}

// Program is tmux by its full name: a chat has a terminal also if its PATH lacks tmux.
const Program = "/usr/bin/tmux"

// StartArgv is the command that starts the server with its first shell and then ends; socket and
// config are paths of the session's view. tmux runs the words of the shell without a /bin/sh
// between. The server ends with its last shell, and then the chat is asleep.
//
// It is not tmux -D, which keeps the server in the foreground. With that the server reads its
// configuration, and starts a shell, only when a first client connects.
func StartArgv(socket, config string, shell []string) []string {
	return append([]string{Program, "-f", config, "-S", socket,
		"new-session", "-d", "-s", Session, "-x", strconv.Itoa(Cols), "-y", strconv.Itoa(Rows),
		"--"}, shell...)
}

// AttachArgv is a client that shows the session on the terminal that it is started on. It is
// the chat's, as every client: see the package. No client sets the size: see [Config].
func AttachArgv(socket string, readOnly bool) []string {
	argv := []string{Program, "-u", "-S", socket, "attach-session", "-t", "=" + Session}
	if readOnly {
		argv = append(argv, "-f", "read-only")
	}
	return argv
}
