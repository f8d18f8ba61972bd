package mcp

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/chatd/chatd/chat"
)

// oneRun has the arguments of run_end.
type oneRun struct {
	Run string `json:"run" maxLength:"64" doc:"The run, as run_start named it."`
}

// pollRun has the arguments of run_poll.
type pollRun struct {
	Run    string        `json:"run" maxLength:"64" doc:"The run, as run_start named it."`
	Cursor string        `json:"cursor,omitempty" maxLength:"64" doc:"Where to begin, as an answer before said; the beginning if it is left out."`
	Wait   chat.Duration `json:"wait,omitempty" doc:"How long to wait for something new or for the end, as in 30s; 1m at most, not at all if it is left out."`
}

// stdinRun has the arguments of run_stdin.
type stdinRun struct {
	Run   string `json:"run" maxLength:"64" doc:"The run, as run_start named it; it must have been started with open_stdin."`
	Text  string `json:"text,omitempty" doc:"What to write, as it is: end a line with a newline."`
	Close bool   `json:"close,omitempty" doc:"Close standard input afterwards."`
}

// maxPollWait bounds wait of run_poll; pollEvery is its polling interval.
const (
	maxPollWait = chat.Duration(time.Minute)
	pollEvery   = 200 * time.Millisecond
)

func (t tools) startRun(ctx context.Context, a chat.RunSpec) (toolAnswer[chat.Run], error) {
	a.Background = true
	r, err := t.chats.StartRun(ctx, t.id, a)
	return toolAnswer[chat.Run]{[]string{fmt.Sprintf("run %s has begun; its timeout is %s; see what it prints and how it ends by run_poll", r.ID, r.Timeout)}, r}, err
}

// pollRun reads from the cursor on, and waits up to its bound for output.
func (t tools) pollRun(ctx context.Context, a pollRun) (out toolAnswer[runPiece], err error) {
	if a.Wait < 0 || a.Wait > maxPollWait {
		return out, chat.Invalid("cannot wait %s: want 0s to %s", a.Wait, maxPollWait)
	}
	until := time.Now().Add(a.Wait.D())
	for {
		o, err := t.chats.ReadRun(ctx, t.id, a.Run, a.Cursor)
		if err != nil {
			return out, err
		}
		if len(o.Frames) > 0 || o.State != chat.RunRunning || !time.Now().Before(until) {
			return t.polled(ctx, a.Run, o)
		}
		if chat.Sleep(ctx, pollEvery) != nil {
			return out, ctx.Err()
		}
	}
}

func (t tools) polled(
	ctx context.Context, run string, o chat.RunOutput,
) (out toolAnswer[runPiece], err error) {
	v := runPiece{Run: run, State: o.State, Missing: o.Missing}
	at, err := chat.ParseRunCursor(o.Cursor)
	if err != nil {
		return out, err
	}
	for _, f := range o.Frames {
		text, replaced, pos := &v.Stdout, &v.StdoutReplaced, &at.Stdout
		if f.Stream == chat.Stderr {
			text, replaced, pos = &v.Stderr, &v.StderrReplaced, &at.Stderr
		}
		p := f.Bytes()
		whole := chat.WholeRunes(p)
		if whole > 0 && (o.State == chat.RunRunning || len(p) == chat.MaxReadRun) {
			*pos -= int64(len(p) - whole) // the next poll has the whole character
			p = p[:whole]
		}
		*text, *replaced = valid(string(p)), chat.InvalidBytes(p)
	}
	v.Cursor = at.String()
	if v.State != chat.RunRunning {
		r, err := t.chats.ShowRun(ctx, t.id, run)
		if err != nil {
			return out, err
		}
		if v.Result = r.Result; v.Result != nil {
			v.Result.Stdout, v.Result.Stderr = "", ""
		}
	}
	return toolAnswer[runPiece]{polledText(v, len(o.Frames) > 0), v}, nil
}

func polledText(v runPiece, more bool) []string {
	var parts []string
	if v.Missing > 0 {
		parts = append(parts, fmt.Sprintf("%d bytes before this are not kept", v.Missing))
	}
	if v.Stdout != "" {
		parts = append(parts, v.Stdout)
	}
	if v.Stderr != "" {
		parts = append(parts, "stderr:\n"+v.Stderr)
	}
	parts = append(parts, replaced(v.StdoutReplaced, v.StderrReplaced)...)
	switch {
	case v.State == chat.RunRunning:
		parts = append(parts, fmt.Sprintf("the run goes on; poll again with cursor %s", v.Cursor))
	case more: // a run that has ended may have another page
		parts = append(parts,
			fmt.Sprintf("the run is %s; what is left of its output is behind cursor %s", v.State, v.Cursor))
	case v.Result != nil:
		parts = append(parts, runText(*v.Result)...)
	default:
		parts = append(parts, "the run is "+string(v.State)+": nobody saw how it ended")
	}
	return parts
}

func (t tools) stdinRun(ctx context.Context, a stdinRun) (out toolAnswer[doneAnswer], err error) {
	if a.Text == "" && !a.Close {
		return out, chat.Invalid("cannot write nothing: want text or close")
	}
	if len(a.Text) > chat.MaxStdin {
		return out, chat.Invalid("cannot write text: %d bytes, want at most %d", len(a.Text), chat.MaxStdin)
	}
	err = t.chats.WriteStdin(ctx, t.id, a.Run, io.NopCloser(strings.NewReader(a.Text)), a.Close)
	text := fmt.Sprintf("%d bytes written", len(a.Text))
	if a.Close {
		text += "; standard input is closed"
	}
	return toolAnswer[doneAnswer]{[]string{text}, doneAnswer{true}}, err
}

func (t tools) endRun(ctx context.Context, a oneRun) (toolAnswer[doneAnswer], error) {
	err := t.chats.EndRun(ctx, t.id, a.Run)
	return toolAnswer[doneAnswer]{[]string{"the run has ended; run_poll says how"}, doneAnswer{true}}, err
}
