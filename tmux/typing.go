package tmux

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrKey is returned for a key name that tmux(1) does not know. tmux itself
// would type the unknown name as text.
var ErrKey = errors.New("no such key")

// If is a condition on the program in front, without which nothing is typed. The server compares
// and types in one step. The chat can forge the server's answer. The zero value always holds.
type If struct {
	// Program is the name that must be in front; see [ValidProgram].
	Program string
	// Shell says whether the program in front must be a shell, or must be none; nil is either.
	Shell *bool
}

// shells are the programs that [If] takes for one.
var shells = []string{"bash", "rbash", "sh", "dash", "zsh", "fish", "ksh", "mksh", "csh", "tcsh",
	"ash", "busybox"}

const shellFormat = "#{m/r:^(%s)$,#{pane_current_command}}"

// format is a format of tmux(1) that is "1" where the condition holds, else "0" or empty.
func (c If) format() string {
	f := "1"
	if c.Program != "" {
		f = "#{==:#{pane_current_command}," + c.Program + "}"
	}
	if c.Shell == nil {
		return f
	}
	is := fmt.Sprintf(shellFormat, strings.Join(shells, "|"))
	if !*c.Shell {
		is = "#{?" + is + ",0,1}"
	}
	return "#{&&:" + f + "," + is + "}"
}

// MaxProgram bounds the name of a program in [If], in bytes.
const MaxProgram = 64

// ValidProgram reports a name that [If] can hold: letters, digits and . _ + - alone, none of
// which a format of tmux reads.
func ValidProgram(name string) bool {
	return len(name) <= MaxProgram && programName.MatchString(name)
}

var programName = regexp.MustCompile(`^[A-Za-z0-9._+-]+$`)

// Front is the terminal's active pane when something was typed or refused, in the server's word.
type Front struct {
	Pane    string // "%0"
	Program string // the name of the program in front
	Rows    int    // of its window
	Cols    int
	Done    int // how many of the keys, or of the texts, were typed
	History int // how many lines were scrolled away before
}

// Shell reports whether the program in front is a shell.
func (f Front) Shell() bool {
	return slices.Contains(shells, f.Program)
}

// ErrUnmet is returned where an [If] does not hold, and of keys as soon as it does not.
var ErrUnmet = errors.New("the condition does not hold")

// Type types a text as [Typeable] has it, then Enter if enter is set, all in one step. The text goes
// in as a paste buffer over the client's stdin, so no byte of it is ever an argument, a
// key name or a tmux command. A program that asked for bracketed paste gets it
// bracketed (paste-buffer -p); in other programs a line feed arrives as Enter.
func (t *Terminal) Type(ctx context.Context, text string, enter bool, cond If) (Front, error) {
	text = Typeable(text)
	buffer := fmt.Sprintf("chatd-%d", t.buffers.Add(1))
	var load, do, undo []string
	if text != "" {
		load = []string{"load-buffer", "-b", buffer, "-", ";"}
		do = []string{"paste-buffer -d -p -b " + buffer + " -t " + target}
		undo = []string{"delete-buffer -b " + buffer}
	}
	if enter {
		do = append(do, "send-keys -t "+target+" Enter")
	}
	argv := append(load, showFront(target)...)
	return t.typeIf(ctx, []byte(text), append(append(argv, ";"), typeIf(target, cond, do, undo)...))
}

// Resize sets the size of the window that is shown, and of windows to come.
func (t *Terminal) Resize(ctx context.Context, rows, cols int) error {
	_, err := t.client(ctx, nil, []string{"set", "-g", "default-size", fmt.Sprintf("%dx%d", cols, rows), ";",
		"resize-window", "-t", target, "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows)})
	return err
}

// The server's pauses between two keys, in seconds: a program that reads several keys together may
// take them for an unknown key, or for a paste.
const (
	keyGap  = "0.05"
	textGap = "0.01"
)

// Press presses keys by name, in order, in pane, or in the active one if that is empty. A name
// that is not a key is [ErrKey], and then none is pressed. The condition is checked for each: a
// key is not pressed where it does not hold.
func (t *Terminal) Press(ctx context.Context, pane string, keys []string, cond If) (Front, error) {
	var script []string
	for _, k := range keys {
		named, known := KeyName(k)
		if !known {
			return Front{}, fmt.Errorf("cannot press %q: want names as in ctrl-c, alt-x, up, enter, f1, or those of tmux(1): %w", k, ErrKey)
		}
		script = append(script, "-- "+quote(named))
	}
	return t.script(ctx, pane, script, keyGap, cond)
}

// TypeKeys types a text, as [Typeable] has it, a character at a time, as [Terminal.Press] presses
// keys: for a program that takes a burst of text for a paste. A line feed is Enter.
func (t *Terminal) TypeKeys(ctx context.Context, text string, cond If) (Front, error) {
	var script []string
	for _, r := range Typeable(text) {
		hex := fmt.Sprintf("% x", string(r))
		if r == '\n' {
			hex = "0d"
		}
		script = append(script, "-H "+hex)
	}
	return t.script(ctx, "", script, textGap, cond)
}

// script sends keys, each the arguments of a send-keys, by a file on the client's stdin. A message
// to the server, which is what arguments go in, has 16 KiB at most.
func (t *Terminal) script(
	ctx context.Context, pane string, keys []string, gap string, cond If,
) (Front, error) {
	to := cmp.Or(pane, target)
	var b strings.Builder
	line := func(words []string) {
		b.WriteString(words[0])
		for _, w := range words[1:] {
			b.WriteString(" " + quote(w))
		}
		b.WriteString("\n")
	}
	line(showFront(to))
	for i, k := range keys {
		if i > 0 {
			b.WriteString("run-shell -d " + gap + "\n")
		}
		line(typeIf(to, cond, []string{"send-keys -t " + to + " " + k}, nil))
	}
	return t.typeIf(ctx, []byte(b.String()), []string{"source-file", "-"})
}

// quote is a word of tmux's command language that is s; see "PARSING SYNTAX" in tmux(1).
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'"'"'`) + "'"
}

const typedMark, unmetMark = "chatd typed", "chatd did not type"

// showFront makes the server print the target pane, and the program in front there.
func showFront(to string) []string {
	return []string{"display-message", "-p", "-t", to,
		"#{pane_id} #{history_size} #{window_height} #{window_width} #{pane_current_command}"}
}

// typeIf is the command that runs do or, if cond does not hold, undo, and prints which it ran.
func typeIf(to string, cond If, do, undo []string) []string {
	return []string{"if-shell", "-F", "-t", to, cond.format(),
		strings.Join(append(do, "display-message -p "+quote(typedMark)), " ; "),
		strings.Join(append(undo,
			"display-message -p -t "+to+" "+quote(unmetMark+" #{pane_current_command}")), " ; ")}
}

// typeIf runs such commands and reads the server's answer.
func (t *Terminal) typeIf(ctx context.Context, stdin []byte, argv []string) (Front, error) {
	out, err := t.client(ctx, stdin, argv)
	if err != nil {
		return Front{}, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	var f Front
	pane, rest, _ := strings.Cut(lines[0], " ")
	if f.Pane = pane; !validPane(pane) {
		return Front{}, fmt.Errorf("cannot type: tmux answered %.80q", out)
	}
	if f.Program, err = numbers(rest, &f.History, &f.Rows, &f.Cols); err != nil {
		return Front{}, fmt.Errorf("cannot type: tmux answered %.80q", out)
	}
	for _, line := range lines[1:] {
		if line == typedMark {
			f.Done++
		} else if program, ok := strings.CutPrefix(line, unmetMark+" "); ok {
			f.Program = program
			return f, ErrUnmet
		}
	}
	if f.Done == 0 {
		return Front{}, fmt.Errorf("cannot type: tmux answered %.80q", out)
	}
	return f, nil
}

// validPane reports an id of a pane as tmux has it: "%0".
func validPane(pane string) bool {
	digits, ok := strings.CutPrefix(pane, "%")
	return ok && digits != "" && len(digits) < 10 && strings.Trim(digits, "0123456789") == ""
}
