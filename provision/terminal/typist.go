package terminal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
	"github.com/chatd/chatd/tmux"
)

// typist types one input.
type typist struct {
	terminal *tmux.Terminal
	log      *Recording
	ring     *ring
	in       chat.Input
	entering func(command bool)
}

// settleTime is how long a mark may take from the shell to here. Where a shell is in front that
// runs a script, its marks alone say that it is not at a prompt.
const settleTime = 500 * time.Millisecond

// typeIf types if the condition holds. It checks the marks first, and what is in front by tmux in
// the same step in which it types.
func (t typist) typeIf(ctx context.Context) (tmux.Front, error) {
	var cond tmux.If
	o := t.in.OnlyIf
	if o == nil {
		return t.once(ctx, cond)
	}
	cond.Program = o.Program
	present, absent := o.Prompt == chat.PromptPresent, o.Prompt == chat.PromptAbsent
	if present || absent {
		cond.Shell = &present
	}
	if present {
		if t.log.awaitPrompt(ctx, t.ring); t.log.lastMark() != markPrompt {
			return tmux.Front{}, t.unmet("the shell has not said that it is at one")
		}
	}
	front, err := t.once(ctx, cond)
	if !errors.Is(err, tmux.ErrUnmet) {
		return front, err
	}
	if script := absent && front.Shell() && front.Done == 0 &&
		(o.Program == "" || o.Program == front.Program); script && t.log.runs(ctx, settleTime) {
		front, err = t.once(ctx, tmux.If{Program: front.Program})
	}
	switch {
	case !errors.Is(err, tmux.ErrUnmet):
		return front, err
	case front.Done > 0:
		return front, t.partly(front)
	}
	return front, t.unmet(chat.Quote(front.Program) + " is in front")
}

func (t typist) unmet(seen string) error {
	return fmt.Errorf("want that %s, but %s; nothing was typed: %w", t.in.OnlyIf, seen, chat.ErrConflict)
}

// partly is the error of a condition that ceased to hold on the way.
func (t typist) partly(front tmux.Front) error {
	what := "the text was typed, but not Enter"
	if len(t.in.Keys) > 0 || t.in.KeyByKey {
		what = fmt.Sprintf("only the first %d keys were typed", front.Done)
	}
	return fmt.Errorf("want that %s, but now %s is in front; %s: %w", t.in.OnlyIf, chat.Quote(front.Program),
		what, chat.ErrConflict)
}

// once types under a condition for tmux. A shell at its prompt reads a text and Enter together; any
// other program gets Enter separately: see [chat.Input].
func (t typist) once(ctx context.Context, cond tmux.If) (tmux.Front, error) {
	in, whole := t.in, cond
	switch {
	case len(in.Keys) > 0:
		t.enter(false)
		return t.terminal.Press(ctx, "", in.Keys, cond)
	case in.Text == "" || !in.Enter:
		t.enter(false)
		return t.text(ctx, in.Enter, cond)
	}
	if last := t.log.lastMark(); last == markNone || last == markBetween {
		t.log.awaitPrompt(ctx, t.ring)
	}
	if yes := true; !in.KeyByKey && t.log.lastMark() == markPrompt && (cond.Shell == nil || *cond.Shell) {
		whole.Shell = &yes
		t.enter(true)
		front, err := t.terminal.Type(ctx, in.Text, true, whole)
		if !errors.Is(err, tmux.ErrUnmet) {
			return front, err
		}
	}
	_, before, _ := t.ring.bounds()
	front, err := t.text(ctx, false, cond)
	if err != nil {
		return front, err
	}
	if err := t.log.pauseAfter(ctx, t.ring, before, tmux.Typeable(in.Text)); err != nil {
		return front, err
	}
	t.enter(false)
	after, err := t.terminal.Press(ctx, front.Pane, []string{"Enter"}, cond)
	after.Done += front.Done
	return after, err
}

// enter records that the shell may print a prompt again.
func (t typist) enter(command bool) {
	if t.log != nil && enters(t.in) {
		t.log.atPrompt.Store(false)
	}
	t.entering(command)
}

func (t typist) text(ctx context.Context, enter bool, cond tmux.If) (tmux.Front, error) {
	if !t.in.KeyByKey {
		return t.terminal.Type(ctx, t.in.Text, enter, cond)
	}
	return t.terminal.TypeKeys(ctx, t.in.Text, cond)
}

// Detail is what the audit log says of an input: no text and no key of it.
func Detail(in chat.Input) map[string]string {
	d := map[string]string{"bytes": fmt.Sprint(len(in.Text)), "keys": fmt.Sprint(len(in.Keys))}
	if in.Size != nil {
		d["size"] = fmt.Sprintf("%dx%d", in.Size.Cols, in.Size.Rows)
	}
	if in.OnlyIf != nil {
		d["only_if"] = in.OnlyIf.String()
	}
	return d
}

// Check reports what cannot be typed, or be a condition, as [chat.ErrInvalid].
func Check(in chat.Input) error {
	if err := in.Validate(); err != nil {
		return err
	}
	if in.Text != "" && tmux.Typeable(in.Text) == "" {
		return chat.Invalid("cannot type: text has control characters alone: press keys by name")
	}
	for _, k := range in.Keys {
		if _, known := tmux.KeyName(k); !known {
			return chat.Invalid("cannot press %s: want names as in ctrl-c, alt-x, up, enter, f1, or those of tmux(1)", chat.Quote(k))
		}
	}
	if o := in.OnlyIf; o != nil && o.Program != "" && !tmux.ValidProgram(o.Program) {
		return chat.Invalid("cannot use only_if.program %s: want a program's name, of letters, digits and . _ + -", chat.Quote(o.Program))
	}
	return nil
}

// enters reports whether a shell may answer the input with a prompt.
func enters(in chat.Input) bool {
	return in.Enter || strings.ContainsAny(in.Text, "\r\n") ||
		slices.ContainsFunc(in.Keys, func(k string) bool {
			key, _ := tmux.KeyName(k)
			return strings.HasSuffix(key, "Enter") || strings.Contains(key, "C-")
		})
}
