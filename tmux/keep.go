package tmux

import (
	"context"
	"strconv"
)

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
